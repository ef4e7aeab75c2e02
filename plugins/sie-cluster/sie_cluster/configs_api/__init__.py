"""What config service and gateway alike tell of model configs and bundles."""
