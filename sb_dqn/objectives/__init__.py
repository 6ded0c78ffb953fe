"""Objectives: map the online network, the target network and a batch to a loss per transition."""
