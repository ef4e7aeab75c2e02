"""Programs as processes: started and started again, and asked whether they are well."""
