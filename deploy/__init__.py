"""How the pieces are started: the embedded stack, the command line, container files."""
