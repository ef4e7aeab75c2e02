"""The labels of a classifier: the one that is the score, the one that means entailment, and the conversion of logits,
in NumPy.
"""

from sie_text.labels.activations import ACTIVATIONS, sigmoid, softmax
from sie_text.labels.labels import Labels, ScoreChoice, classify, score

__all__ = ["ACTIVATIONS", "Labels", "ScoreChoice", "classify", "score", "sigmoid", "softmax"]
