"""What a run found, and how it is shown: results, verdicts, tables, a picture."""
