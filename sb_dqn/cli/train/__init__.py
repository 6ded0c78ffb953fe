"""The `sb-dqn train` command."""
