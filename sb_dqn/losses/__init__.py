"""Loss functions and return estimators: pure functions on tensors that import torch alone."""
