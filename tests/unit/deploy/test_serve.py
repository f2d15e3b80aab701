"""What the API's servers leave out of their log."""

from __future__ import annotations

import logging
import logging.config

import pytest

from deploy.serve import LOGGING, SocketChatter


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ('%s - "WebSocket %s" [accepted]', False),
        ("connection open", False),
        ("connection closed", False),
        ("Invalid UTF-8 sequence received from client.", False),
        ('%s - "WebSocket %s" 403', True),
        ("Exception in ASGI application\n", True),
        ("opening handshake failed", True),
    ],
)
def test_that_a_watcher_came_and_went_is_not_told_and_what_is_wrong_is(said: str, kept: bool) -> None:
    record = logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, said, (), None)
    assert SocketChatter().filter(record) is kept


def test_the_filter_is_that_of_the_logger_that_sockets_write_to() -> None:
    (name,) = LOGGING["loggers"]["uvicorn.error"]["filters"]
    assert isinstance(
        logging.config.DictConfigurator(LOGGING).configure_filter(LOGGING["filters"][name]), SocketChatter
    )
