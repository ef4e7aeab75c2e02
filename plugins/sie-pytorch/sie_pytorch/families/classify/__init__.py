"""Classifiers of single texts: sentiment, language, toxicity, routing."""
