"""Sources of model configs: local folders, object stores, weights without a config; and the watcher of changes."""
