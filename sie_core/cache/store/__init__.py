"""A shared object store as a tier, between the local cache and the Hub."""
