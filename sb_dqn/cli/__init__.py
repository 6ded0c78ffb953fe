"""The console command `sb-dqn`. Nothing heavy is imported before a command runs, so that `--help` answers at once."""
