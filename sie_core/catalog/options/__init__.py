"""The options a request may give: those of the engine, of postprocessors, of families."""
