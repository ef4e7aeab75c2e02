"""The pages for people: `/`, `/docs`, and the one that asks for a token, which are written in `files/`."""
