"""The command `sb-dqn benchmark`: suites of environments, their runs, and the results as data."""
