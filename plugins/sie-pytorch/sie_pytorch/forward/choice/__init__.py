"""Which runner serves a model: candidates, the proof each must pass, and the race between those that passed."""
