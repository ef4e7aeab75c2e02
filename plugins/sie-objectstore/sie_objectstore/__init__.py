"""Object stores for SIE: `s3://`, `gs://` and `az://`, all through obstore."""

__version__ = "1.0.0"
