"""What a gateway shows of its workers: as they say in heartbeats, or where it asks each itself."""
