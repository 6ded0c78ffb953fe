"""The command `sb-dqn report`: one HTML page of a run or of a comparison."""
