"""Models that read two texts at once: cross-encoders, rerankers made of language models, and entailment classifiers.

They share the runners, the tokenizer and the pooling of the text encoders.
"""
