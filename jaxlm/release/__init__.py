"""Export to Hugging Face: tables of names, the files of a release, the PyTorch code they carry, verification."""
