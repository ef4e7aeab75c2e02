"""What a text model needs before its forward pass, and what its files say, without PyTorch or transformers.

For the author of a plugin, in the order of a load and then of a request:

- `sie_text.recipe`: what a checkpoint's files say a model is
- `sie_text.tokenizer`: its tokenizer, and the checked text of an item
- `sie_text.lengths`: how long texts may be
- `sie_text.prompts`: what stands around a text
- `sie_text.encode`: items to token sequences
- `sie_text.pairs`: pairs of texts to token sequences
- `sie_text.sequences`: token sequences, and packed batches of them
- `sie_text.labels`, `sie_text.sparse`: outputs of classifiers and of sparse encoders
- `sie_text.adapter`: what adapters of text models share
- `sie_text.options`: options that families share
- `sie_text.loading`: what every load does

What else lies in the package is its own.
"""

__version__ = "1.0.0"
