"""Backfills of documents: many files through one verb or a chain of steps. See docs/backfills.md.

What is decided is here, pure; the work is done in `api.feeding.backfills`.
"""
