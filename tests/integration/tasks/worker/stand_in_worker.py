"""The real `celery worker` command with the stand-in as its engine child. Settings come from the environment."""

from __future__ import annotations

import sys
from pathlib import Path

from celery.bin.celery import celery

from tasks.celery import make_app
from tasks.settings import Settings

STAND_IN = Path(__file__).with_name("stand_in.py")


def main() -> None:
    extra = ("--echo",) if "--echo" in sys.argv else ()
    arguments = [word for word in sys.argv[1:] if word != "--echo"]
    app = make_app(Settings(), child=(sys.executable, str(STAND_IN), *extra))
    app.set_current()
    # As `app.worker_main` does, which forgets the status.
    celery.params[0].default = app
    celery.main(args=["worker", *arguments])


if __name__ == "__main__":
    main()
