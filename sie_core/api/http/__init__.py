"""What every route shares below its body: middleware, admission, headers, errors, limits."""
