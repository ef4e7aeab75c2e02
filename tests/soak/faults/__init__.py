"""A cluster of real processes under load: each is killed, stopped and told to end, and no answer may be lost."""
