"""What may be wrong with a bundle whose file is well formed; a module a subject."""
