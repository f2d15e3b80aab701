"""The whole stack on one machine, without Docker or root packages."""
