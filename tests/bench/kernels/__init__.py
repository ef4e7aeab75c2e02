"""What the compiled kernels are worth: the same forward pass in them and in the loop over PyTorch's operators."""
