"""What is measured without a server: libraries, forward passes, the command line, accuracy."""
