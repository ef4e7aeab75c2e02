"""The routes of resource pools, which a gateway answers."""
