"""Objectives: from two nets and a batch to a loss per transition."""
