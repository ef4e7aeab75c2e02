"""Relations: which entities are related, and how."""
