"""Payloads larger than a message of the broker: held by their sender, or in a store that both sides reach."""
