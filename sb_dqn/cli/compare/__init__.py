"""The `sb-dqn compare` command."""
