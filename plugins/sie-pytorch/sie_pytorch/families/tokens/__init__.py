"""Classifiers of tokens: named entities, personal data, parts of speech."""
