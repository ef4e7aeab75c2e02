"""Plugins that each do one thing wrong; all of them register well."""
