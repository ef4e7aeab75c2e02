"""The Hugging Face Hub as a tier: choice of files, revisions and requests."""
