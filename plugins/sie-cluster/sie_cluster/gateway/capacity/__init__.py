"""Which capacity there is for requests, how much of it is taken, and what is asked for and is not there."""
