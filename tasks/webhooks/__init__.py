"""Telling callers by HTTP what became of their work, and what may be reached for that."""
