"""Reading a recipe, one file a kind of module; `sie_pytorch.recipe` is the way in."""
