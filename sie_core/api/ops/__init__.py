"""Routes for operators: health, metrics, models, plugins."""
