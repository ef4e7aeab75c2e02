"""Text encoders: one forward pass and the heads on its states."""
