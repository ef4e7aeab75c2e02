"""The forward pass by the compiled kernels, in NumPy: what is before the layers, the call, and its proof."""
