"""Models of images and texts: CLIP and SigLIP, both kinds of input into one space.

They share the tokenizer, the prompts and the lengths of the text encoders; their forward passes are transformers' own.
"""
