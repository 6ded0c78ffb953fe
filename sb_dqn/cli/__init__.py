"""The console command `sb-dqn`. Commands import heavy packages only when they run, so that `--help` is fast."""
