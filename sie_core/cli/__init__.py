"""SIE: cli."""
