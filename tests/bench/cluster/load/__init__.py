"""Clusters under load that is more than they can take, grows, or comes from many: printed as ratios."""
