"""What GLiNER computes on an encoder's states: words and labels, spans, relations."""
