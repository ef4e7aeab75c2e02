"""The loop: runners that run a transformer's layers themselves, told how by the record of its type."""
