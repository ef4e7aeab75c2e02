"""An assembled adapter: tokenizer, runner and heads."""
