"""Runs of the commands: folder, configuration, training, results, and statistics over runs."""
