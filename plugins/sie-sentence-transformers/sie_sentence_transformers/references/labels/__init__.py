"""References for models whose weights have labels: transformers' own pipelines for texts and for tokens."""
