"""What runs while an image is built, and in it: standard library alone, copied into the build's context as it is."""
