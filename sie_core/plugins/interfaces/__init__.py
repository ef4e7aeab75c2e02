"""The interfaces between the engine and plugins: their versions, and the signatures of their methods."""
