"""`make bench-gpu`: tokens a second of SIE on a GPU beside sentence-transformers and padded batches."""
