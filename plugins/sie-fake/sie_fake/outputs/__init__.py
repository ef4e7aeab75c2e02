"""What the fakes give: vectors, scores, extractions."""
