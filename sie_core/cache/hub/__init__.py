"""The Hugging Face Hub as a tier: which files, by which requests, at which revision."""
