"""One model at a time is built by the libraries, since they are not made for more.

transformers puts functions of its own classes aside while it builds a model, and back when it is done. Two that do so
at once may leave them aside for good: no model whose embeddings are tied can be read any more until the process ends.
"""

from __future__ import annotations

import threading

BUILDING = threading.RLock()
"""Held by whoever has a library build a model."""
