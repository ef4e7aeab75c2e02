"""Operations beside their libraries: the same folder of weights behind SIE's engine and behind the reference's own API.

Each side is a process that lives through the part; they take turns, so that neither computes while the other is timed.
"""
