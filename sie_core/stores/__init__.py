"""What stands on the contract of object stores: a folder that keeps it, and a lease on the right to write."""
