"""A checkpoint's files without a model library: what `config.json` says, and the tensors in mapped safetensors."""
