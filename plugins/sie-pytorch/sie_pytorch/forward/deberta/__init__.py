"""DeBERTa v2 and v3 packed: disentangled attention (arXiv 2006.03654) over concatenated sequences, on CPUs."""
