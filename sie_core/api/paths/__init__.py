"""What becomes of paths that no route has: spellings that clients are known for, and mistakes."""
