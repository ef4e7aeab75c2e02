"""GLiNER's modules on an encoder's states: words and labels, spans, relations."""
