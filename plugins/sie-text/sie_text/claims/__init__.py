"""Which checkpoints are text encoders, models of pairs, or classifiers: what families of any library claim, and why.

It reads cards alone. Previews predict the facts of a load from small files. Only the names below are public.
"""

from sie_text.claims.classifiers import claim_classifier, preview_classifier
from sie_text.claims.encoders import claim_encoder
from sie_text.claims.pairs import LINES, claim_pairs
from sie_text.claims.previews import preview_encoder, preview_pairs, preview_vision
from sie_text.claims.tokens import claim_token_classifier, preview_token_classifier

__all__ = [
    "LINES",
    "claim_classifier",
    "claim_encoder",
    "claim_pairs",
    "claim_token_classifier",
    "preview_classifier",
    "preview_encoder",
    "preview_pairs",
    "preview_token_classifier",
    "preview_vision",
]
