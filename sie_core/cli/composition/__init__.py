"""Shared by the commands: settings and plugins in force, the parts made of them, and a checkup."""
