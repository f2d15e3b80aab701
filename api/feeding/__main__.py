"""The feeder as a process: `python -m api.feeding`. Settings come from the environment; SIGTERM ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket

from api.feeding.feeder import Feeder
from api.feeding.services import feeding
from tasks.settings import Settings


async def _run(settings: Settings) -> None:
    async with feeding(settings) as it:
        feeder = Feeder(it, socket.gethostname())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, feeder.close)
        # What is here now stays: walked through with each large line, it would make reading one four times as slow.
        gc.collect()
        gc.freeze()
        await feeder.run()


def main() -> None:
    """Run until a signal."""
    settings = Settings.from_environment()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_run(settings))


if __name__ == "__main__":
    main()
