"""The families `cpu`, `cpu-pairs`, `cpu-classify` and `cpu-tokens`: text models by the kernels, without PyTorch."""
