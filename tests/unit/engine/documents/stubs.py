"""A converter without any library, for the pool: what it does with a document is what its text says."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from typing import Any

from engine.documents.errors import Damaged


class Stub:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        if settings.get("fails"):
            raise FileNotFoundError("no such weights")

    def convert(self, request: Mapping[str, Any]) -> dict[str, Any]:
        said = request["data"].decode()
        if said == "sleep":
            time.sleep(3600)
        elif said == "spin":
            # Holds the interpreter for longer than anybody lives: no thread of Python's could end it.
            re.match(r"(a+)+$", "a" * 64 + "b")
        elif said == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif said == "exit":
            os._exit(3)
        elif said == "eat":
            return {"text": "x" * (400 * 2**20)}
        elif said == "grow":
            self.kept = b"x" * (64 * 2**20)
        elif said == "damaged":
            raise Damaged("broken")
        elif said == "secret":
            raise ValueError("the document says: secret")
        elif said == "deep":
            return self.convert(request)
        return {"text": said.upper(), "pid": os.getpid(), "soft_s": request["soft_s"]}
