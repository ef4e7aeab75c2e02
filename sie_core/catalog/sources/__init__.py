"""Where model configs come from: local folders, object stores, weights without a config; and the watcher of changes."""
