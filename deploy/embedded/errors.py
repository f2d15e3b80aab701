"""What the embedded stack reports to the person who started it; each message says what to do."""

from __future__ import annotations


class EmbeddedError(Exception):
    """Something on this machine stops the embedded stack; the message says what to change."""


class NotReadyError(EmbeddedError):
    """A piece ended or stayed silent while it should have become ready; its log says why."""


class AlreadyRunningError(EmbeddedError):
    """Another stack holds this data folder."""
