"""Converts texts to token ids exactly as the reference libraries do, and lists tokens for clients.

- `load_tokenizer` builds the `TextTokenizer` of a checkpoint
- `obey_file` has a tokenizer that another library built follow `tokenizer.json`
- `text_at` returns the checked text of an item; `require_unicode` is only the check
"""

from sie_text.tokenizer.core import Ids, TextTokenizer
from sie_text.tokenizer.loading import TRIAL, broken_tokenizer, lacking_config, load_tokenizer
from sie_text.tokenizer.precedence import obey_file
from sie_text.tokenizer.slow import load_any_tokenizer
from sie_text.tokenizer.texts import require_unicode, text_at

__all__ = [
    "TRIAL",
    "Ids",
    "TextTokenizer",
    "broken_tokenizer",
    "lacking_config",
    "load_any_tokenizer",
    "load_tokenizer",
    "obey_file",
    "require_unicode",
    "text_at",
]
