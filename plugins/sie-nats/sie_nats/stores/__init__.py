"""What the broker keeps beside queues: key-value stores, and journals."""
