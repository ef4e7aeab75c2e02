"""Three brokers under load: leaders are killed, stopped, cut off and stepped down, and no answer may be lost."""
