"""`python -m tasks.child --fd N --name W`: the engine child. The Celery parent starts it; nobody does by hand."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import threading
import time
from collections.abc import Sequence
from functools import partial

import redis

from catalog.errors import CatalogError
from catalog.live import Change, LiveCatalog
from engine.costs import CostBook
from engine.device import choose_device
from engine.engine import Engine
from engine.errors import DeviceUnavailable, InvalidBudget, LedgerUnusable
from engine.families import beside_device, check
from engine.limits import lane_count
from tasks.blobs import Blobs
from tasks.catalog import live_catalog
from tasks.child.claimer import Claimer
from tasks.child.committer import Committer
from tasks.child.costs import CostKeeper
from tasks.child.fetcher import Fetcher
from tasks.child.hand import Hand
from tasks.child.heartbeat import Heartbeat
from tasks.child.limits import account, engine_limits, eviction
from tasks.child.line import Line
from tasks.child.marker import Marker
from tasks.child.process import die_with_parent, leave_signals_to_parent, let_idle_threads_sleep
from tasks.child.receiver import Receiver
from tasks.child.repertoire import Repertoire
from tasks.child.reporter import Reporter
from tasks.child.seeker import Seeker
from tasks.child.shelf import Shelf
from tasks.child.tally import Tally
from tasks.child.teller import Teller
from tasks.child.wakes import Wakes
from tasks.contents import Contents
from tasks.db import Database
from tasks.settings import Settings
from tasks.store.claim import Limits

log = logging.getLogger("tasks.child")

REFUSALS = (CatalogError, DeviceUnavailable, InvalidBudget, LedgerUnusable)
"""What no restart mends: the settings and this machine do not fit."""


def _beside(catalog: LiveCatalog, model: str) -> bool:
    """Whether a model works beside the device; one that has left the catalog meanwhile does not."""
    try:
        return beside_device(catalog.find(model).spec.family)
    except CatalogError:
        return False


def serve(line: Line, settings: Settings, worker: str) -> bool:
    """Work until the parent asks for the end (True) or is gone (False)."""
    catalog = live_catalog(settings)
    for name in (*settings.preload_names, *settings.pinned_names):
        catalog.ask(name)
    device = choose_device(settings.device)
    database = Database(settings.database_url, settings.pool_size)
    valkey = redis.Redis.from_url(settings.redis_url, socket_timeout=2, socket_connect_timeout=2)
    wakes = Wakes(valkey)
    hand = Hand()
    tally = Tally()
    # The committer reports to the reporter, which puts into the committer: tied by a function looked up when called.
    contents = Contents(Blobs(settings.blobs_url), settings.blob_bytes)
    shelf = Shelf(contents)
    committer = Committer(
        database,
        wakes,
        lambda report: reporter.committed(report),  # noqa: PLW0108
        tally=tally,
        shelf=shelf,
    )
    reporter = Reporter(
        hand,
        committer,
        line.send,
        worker=worker,
        max_attempts=settings.max_attempts,
        tally=tally,
        beside=partial(_beside, catalog),
    )
    bounds = engine_limits(settings, device)
    book = CostBook(device.hardware, lanes=lane_count(bounds, device))
    keeper = CostKeeper(database, book, device.hardware)
    engine = Engine(
        catalog,
        device,
        bounds,
        reporter,
        eviction=eviction(settings),
        account=account(settings, device),
        costs=book,
    )
    receiver = Receiver(catalog, engine, hand, reporter, line.send)
    marker = Marker(
        hand,
        database,
        wakes,
        worker=worker,
        lease_s=settings.job_lease_s,
        taken=receiver.cancel,
    )
    reporter.marker = marker
    reporter.teller = teller = Teller(wakes)
    limits = Limits(settings.max_attempts, settings.max_deliveries)
    claimer = Claimer(
        database, worker=worker, limits=limits, admit=receiver.admit, drop=reporter.dropped, changed=wakes.changed
    )
    receiver.claimer = claimer
    receiver.seeker = seeker = Seeker(catalog, receiver.sort)
    receiver.fetcher = fetcher = Fetcher(
        contents, admit=receiver.admit, fail=receiver.fail, give_back=receiver.give_back
    )
    repertoire = Repertoire(catalog, line.send)

    def changed(change: Change) -> None:
        _warn(catalog)
        engine.renew(change.changed)
        repertoire.tell()

    heartbeat = Heartbeat(
        engine,
        valkey,
        name=worker,
        held=hand,
        tally=tally,
        batch_items=settings.batch_items,
        lost=receiver.losses,
        heard=repertoire.look,
    )

    engine.start()
    for thread in (keeper, committer, marker, teller, claimer, seeker, fetcher, heartbeat):
        thread.start()
    if settings.catalog_poll_s:
        catalog.watch(settings.catalog_poll_s, changed)
    # What lives as long as the process is not worth looking at in each collection.
    gc.collect()
    gc.freeze()
    line.send("ready", os.getpid(), lane_count(bounds, device))
    log.info("engine child of %s on %s", worker, device)
    # It imports every family, and the first job need not wait for that.
    threading.Thread(target=_warn, args=(catalog,), name="check", daemon=True).start()
    for frame in line.frames():
        if not receiver.frame(frame):
            break
    else:
        return False
    engine.stop()
    catalog.close()
    seeker.close()
    claimer.close()
    fetcher.close()
    committer.close(settings.shutdown_s)
    shelf.close()
    keeper.close(settings.shutdown_s)
    marker.close()
    heartbeat.close()
    database.close()
    return True


def _warn(catalog: LiveCatalog) -> None:
    for problem in check(catalog.specs):
        log.warning("a model that will not load: %s", problem.message)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments, tie this process's life to its parent's, and serve."""
    parser = argparse.ArgumentParser(prog="python -m tasks.child")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--parent", type=int, default=os.getppid())
    arguments = parser.parse_args(argv)
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.Formatter.converter = time.gmtime
    leave_signals_to_parent()
    let_idle_threads_sleep()
    die_with_parent(arguments.parent)
    line = Line(arguments.fd)
    try:
        asked = serve(line, settings, arguments.name)
    except REFUSALS as error:
        log.critical("%s: %s", error.code, error.message)
        line.send("refused", error.code, error.message)
        asked = False
    if not asked:
        os._exit(1)


if __name__ == "__main__":
    main()
