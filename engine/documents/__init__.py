"""Reading documents, beside the device: a pool of processes that convert, and what they do with one file.

The pool (`pool.py`, `process.py`) runs in the engine's process and imports nothing heavy. Everything that opens a file
runs in a process of the pool (`child.py`), which may be killed at any moment, and whose memory is bounded.
"""
