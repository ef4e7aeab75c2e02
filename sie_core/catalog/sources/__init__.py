"""Where model configs come from: folders, object stores, weights found; and the watcher that follows them."""
