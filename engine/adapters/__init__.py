"""One module for each model family; the module's name is the family's name in a spec."""
