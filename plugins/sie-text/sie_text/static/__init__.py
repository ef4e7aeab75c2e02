"""The family `static`: vectors and weights looked up by token, in NumPy; sparse models of two routes stand on it."""

from sie_text.static.lookup import LookupEncoder, LookupKey
from sie_text.static.routed import RoutedEncoder

__all__ = ["LookupEncoder", "LookupKey", "RoutedEncoder"]
