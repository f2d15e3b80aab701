"""All SQL. Each function takes a Connection and runs inside the caller's transaction."""
