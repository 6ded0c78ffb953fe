"""The commands `sb-dqn train` and `sb-dqn resume`."""
