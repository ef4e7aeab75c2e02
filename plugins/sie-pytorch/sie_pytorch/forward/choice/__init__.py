"""Chooses the runner of a model: candidates, the proof that each must pass, and the race between those that passed."""
