"""Steps of decoders' layers that are several operators of PyTorch, each as one kernel."""
