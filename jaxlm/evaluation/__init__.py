"""How well a model knows held-out text: likelihoods, what they are compared with, and their standard errors."""
