"""What workers found out about models, kept at the broker for gateways that start before empty pools."""
