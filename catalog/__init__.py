"""Which models exist, what they do and what they cost. No HTTP, no SQL, no torch."""
