"""The command `sb-dqn compare`."""
