"""The encoder loop: a runner for CPUs that runs a transformer's layers over prepacked weights, told how by a table."""
