"""The checks of the kit, a module for each kind of part.

A check is a function of the part. It raises AssertionError with the reason if the part fails it, and `Skipped` if it
has nothing to look at. Its name, with `-` for `_`, is the end of its id; its docstring is its paragraph in the docs.
"""
