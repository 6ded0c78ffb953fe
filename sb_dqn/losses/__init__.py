"""Loss functions and return estimators: pure functions on tensors."""
