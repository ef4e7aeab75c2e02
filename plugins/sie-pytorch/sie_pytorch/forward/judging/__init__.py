"""Half precision held to what heads make of states, and what a load keeps of it for the next."""
