"""The pytest plugin of the author's kit: fixtures, loaded into every pytest session of an environment with sie-core.

So it imports nothing of the engine before a test asks for it.
"""
