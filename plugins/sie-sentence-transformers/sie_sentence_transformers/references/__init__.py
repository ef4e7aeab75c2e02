"""References for `sie verify`: the libraries that computed these models first, on the same weights, one text at a time.

They share no code with the adapters but the reading of the model's own options.
"""
