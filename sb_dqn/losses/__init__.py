"""Pure maths on tensors: no class, no state, nothing of ours imported."""
