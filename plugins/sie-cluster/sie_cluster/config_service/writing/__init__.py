"""What a write asks for and what it makes of a config; nothing here keeps anything."""
