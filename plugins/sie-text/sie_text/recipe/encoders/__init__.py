"""What the files of text encoders say: dense, sparse and late-interaction ones."""
