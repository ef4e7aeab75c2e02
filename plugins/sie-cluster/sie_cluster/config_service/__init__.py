"""The config service: the one writer of a cluster's model configs."""
