"""Many models on one device: real-sized ones under a limit that holds a few of them."""
