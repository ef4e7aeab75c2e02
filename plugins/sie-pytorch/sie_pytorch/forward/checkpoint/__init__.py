"""Reading a checkpoint into an encoder of transformers: weights, dialects of config.json, precision, positions."""
