"""Outputs made of others: one vector of many, MUVERA and SMVE."""
