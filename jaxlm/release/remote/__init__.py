"""The PyTorch side of a release: every `*_jaxlm.py` is copied into the exported directory and runs without jaxlm."""
