"""Model configs as values: schema, reading, ids, the catalog snapshot."""
