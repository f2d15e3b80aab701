"""Whether a grammar can be kept, found out before a job is queued. No torch: the compiler is `llguidance`, in Rust.

The worker locks the output by the same library, so what passes here compiles there.
"""

from __future__ import annotations

from catalog.options.generate import Grammar


def check_grammar(grammar: Grammar) -> None:
    """Raise InvalidOption that names the part of a grammar that is wrong or not supported, by its path."""
