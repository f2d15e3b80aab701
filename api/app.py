"""The application: parts made once for each process, routes, error handlers.

`uvicorn api.app:create --factory` reads the settings from the environment; any number of such processes may share
a port.
"""

from __future__ import annotations

import gc
import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI

from api import compat, errors, openapi
from api.auth import Keys
from api.body import BodyTimeout, BodyTooLarge, ClientGone, on_gone, on_unread
from api.ending import before_shutdown
from api.flower import Flower
from api.limits import Limiter
from api.link import Link
from api.metrics import Measured, Metrics, Scrape
from api.parts import parts
from api.progress import Progress
from api.route import is_keyed
from api.routes import (
    backfills,
    dead,
    deliveries,
    events,
    flower,
    health,
    jobs,
    models,
    residency,
    results,
    submit,
    usage,
    webhooks,
)
from api.services import Services
from api.signing import Signing
from api.unanswered import Unanswered
from api.waiting import Waiting
from catalog.loader import Catalog
from tasks.notices import Change
from tasks.prepare import Limits
from tasks.settings import Settings

log = logging.getLogger(__name__)

LINK_WAIT_S = 2.0
"""A process starts without Valkey, but gives it this long, so that the first requests find the link up."""

_ABOUT = "A job queue service that runs many small models on shared GPUs."


def create() -> FastAPI:
    """The application with settings from the environment: the entry point of servers."""
    settings = Settings.from_environment()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # It tells every URL that is asked for.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    app = create_app(settings)
    # What is here now lives as long as the process. Left to the collector, each full collection would walk through all
    # of it and hold every caller up for a tenth of a second.
    gc.collect()
    gc.freeze()
    return app


def create_app(settings: Settings, catalog: Catalog | None = None) -> FastAPI:
    """An application of its own: nothing is shared with another one in the same process."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.services = await _start(settings, catalog, metrics, stack)
            yield

    app = FastAPI(
        title="Roost",
        version=version("roost"),
        description=_ABOUT,
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
        # Looked for at each request otherwise, in the environment.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for router in (
        submit.router,
        jobs.plain,
        jobs.router,
        results.router,
        events.router,
        models.router,
        residency.router,
        usage.router,
        backfills.router,
        webhooks.router,
        deliveries.router,
        dead.router,
        health.router,
        flower.router,
        *compat.routers,
    ):
        # Copied, not included: an included router is resolved again at every request.
        app.router.routes.extend(router.routes)
    _all_behind_the_door(app)
    errors.install(app)
    errors.handle(app, BodyTooLarge, on_unread)
    errors.handle(app, BodyTimeout, on_unread)
    errors.handle(app, ClientGone, on_gone)
    errors.handle(app, events.StreamOver, events.on_stream_over)
    app.add_middleware(Measured, metrics=metrics)
    app.openapi = partial(openapi.document, app)  # type: ignore[method-assign] # the documented way to change it
    return app


_OPEN = frozenset({"/openapi.json", "/docs", "/docs/oauth2-redirect"})
"""What the framework itself serves: it tells what this server can do, and nothing of anybody's."""


def _all_behind_the_door(app: FastAPI) -> None:
    """Raises TypeError for a route that would not ask who comes."""
    for route in app.router.routes:
        if not is_keyed(route) and getattr(route, "path", "") not in _OPEN:
            raise TypeError(f"{route} asks nobody for a key: make it of api.route's classes")


async def _start(settings: Settings, catalog: Catalog | None, metrics: Metrics, stack: AsyncExitStack) -> Services:
    """Make the parts; `stack` takes them apart again, the last one first."""
    made = parts(settings, catalog, "roost-api", stack)
    for problem in made.catalog.problems:
        log.warning("left out of the catalog: %s", problem.message)
    instance = secrets.token_hex(8)
    waiting = Waiting(made.database, made.submitter.keep)
    stack.push_async_callback(waiting.settle)

    progress = Progress()

    def changed(changes: Sequence[Change]) -> None:
        waiting.on_changes(changes)
        progress.heard(changes)

    def link_down() -> None:
        metrics.link_losses.inc()
        waiting.on_down()

    link = Link(
        settings.redis_url,
        instance,
        replies=waiting.on_replies,
        changes=changed,
        pieces=waiting.on_pieces,
        up=waiting.on_up,
        down=link_down,
        away=metrics.link_down.inc,
    )
    link.start()
    stack.push_async_callback(link.close)
    presence, prices = made.watched(stack)
    keys = Keys(settings, made.database, time.time)
    monitor = Flower(settings)
    stack.push_async_callback(monitor.close)
    stack.callback(waiting.close)
    stack.enter_context(before_shutdown(waiting.close))
    if not await link.ready(LINK_WAIT_S):
        log.warning("starting without Valkey: jobs are taken in, and sent once it is there")
    return Services(
        settings=settings,
        limits=Limits.of(settings),
        instance=instance,
        clock=time.time,
        catalog=made.catalog,
        asking=made.asking,
        counting=made.counting,
        fetching=made.fetching,
        database=made.database,
        redis=made.redis,
        publisher=made.publisher,
        submitter=made.submitter,
        link=link,
        waiting=waiting,
        unanswered=Unanswered(),
        presence=presence,
        progress=progress,
        prices=prices,
        metrics=metrics,
        scrape=Scrape(made.database, made.redis, presence),
        keys=keys,
        limiter=Limiter(settings, made.redis, made.database, keys.limits_of, time.time),
        signing=Signing(made.database),
        flower=monitor,
        blobs=made.blobs,
        contents=made.contents,
    )
