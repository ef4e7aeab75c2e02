"""Long runs of a real server: what it holds, and what it loses."""
