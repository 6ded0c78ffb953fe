"""The command `sb-dqn tune`."""
