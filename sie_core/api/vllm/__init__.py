"""The routes of vLLM for models that score or classify."""
