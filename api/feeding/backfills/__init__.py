"""The feeder's work on backfills of documents: each document becomes jobs of its steps, and these become rows."""
