"""Everything that a text model needs before its forward pass, and the content of its files, without PyTorch or
transformers.

For the author of a plugin, in the order of a load and then of a request:

- `sie_text.recipe`: the model that a checkpoint's files describe
- `sie_text.tokenizer`: its tokenizer, and the checked text of an item
- `sie_text.lengths`: limits on the length of texts
- `sie_text.prompts`: prompts around a text
- `sie_text.encode`: items to token sequences
- `sie_text.entities`: entities by the labels of tokens
- `sie_text.pairs`: pairs of texts to token sequences
- `sie_text.sequences`: token sequences, and packed batches of them
- `sie_text.heads`: from the states of a batch to outputs, in NumPy
- `sie_text.labels`, `sie_text.sparse`: outputs of classifiers and of sparse encoders
- `sie_text.adapter`: shared by the adapters of text models
- `sie_text.options`: options that families share
- `sie_text.loading`: shared by all loads

Everything else in the package is private.
"""

__version__ = "1.0.0"
