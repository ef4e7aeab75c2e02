"""The routes of the config service."""
