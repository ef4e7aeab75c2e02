"""Words around a text: prompts of the weights, instructions, and templates of a model's config."""

from sie_text.prompts.prompts import LONGEST_PROMPT, MOST_ADDED, Prompt, Prompts, check_length
from sie_text.prompts.templates import Template, parse_template

__all__ = ["LONGEST_PROMPT", "MOST_ADDED", "Prompt", "Prompts", "Template", "check_length", "parse_template"]
