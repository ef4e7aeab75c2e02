"""The labels of a classifier: which is the score, which says entailment, and what becomes of logits, in NumPy."""

from sie_text.labels.activations import ACTIVATIONS, sigmoid, softmax
from sie_text.labels.labels import Labels, ScoreChoice, classify, score

__all__ = ["ACTIVATIONS", "Labels", "ScoreChoice", "classify", "score", "sigmoid", "softmax"]
