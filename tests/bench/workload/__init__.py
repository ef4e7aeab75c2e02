"""The texts that are encoded, what the reference makes of them, and the cells of the grid."""
