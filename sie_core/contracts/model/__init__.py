"""A model as the catalog describes it, and where its weights come from."""
