"""The learner: parameters, gradients, the step of the optimizer, and several learners."""
