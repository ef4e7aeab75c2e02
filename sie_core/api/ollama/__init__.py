"""The routes of Ollama by which its clients embed."""
