"""An adapter put together: tokenizer, runner and heads."""
