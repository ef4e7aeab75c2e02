"""SIE: postprocess."""
