"""Whether one client takes the service from others: short requests beside large ones, and goodput at overload."""
