"""Reading answers: results, failures, and what headers say of both."""
