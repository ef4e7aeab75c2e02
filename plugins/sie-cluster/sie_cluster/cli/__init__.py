"""The commands, a file or folder each, imported when one is called."""
