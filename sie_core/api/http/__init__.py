"""HTTP for every route: middleware, admission, web pages, errors, limits, model ids."""
