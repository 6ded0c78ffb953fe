"""The command `sb-dqn plot`: learning curve of a run, and aggregate plots of many runs on many environments."""
