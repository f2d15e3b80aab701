"""HTTP in, HTTP out. Never imports the engine, so its image holds no torch."""
