"""Who is there, what each worker pulls, and whose requests it answers: heartbeats, placement, resource pools."""
