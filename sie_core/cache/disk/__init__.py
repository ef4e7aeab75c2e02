"""The local cache in the Hub's layout: its files, proofs of what was checked, locks, and its tier."""
