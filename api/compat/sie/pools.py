"""/v1/pools: a thin and honest shim. A pool is a lease with a name; it reserves no worker and holds no job back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Path as InPath
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import read_body
from api.compat.dialect import route_class
from api.compat.shapes import shaped
from api.compat.sie import errors
from api.compat.sie.capacity import BUNDLE, gpu_of, gpu_types
from api.compat.sie.pool_store import Pool, PoolStore
from api.media import Media, dumps
from api.presence import Worker
from api.queries import NoQuery, read_query
from api.route import documented
from api.schemas import Reply
from api.services import Services, services
from tasks.errors import InvalidRequest, TaskError
from tasks.items import Strict

router = APIRouter(route_class=route_class(errors.render), tags=["pools"])

MAX_BODY_BYTES = 64 * 1024
QUEUE_POOL = "default"
POOL_HEADER = "x-sie-pool"
PROFILE_HEADER = "x-sie-machine-profile"
LOOK_S = 5.0
"""How old what is known of the live workers may be where a profile is looked for."""

Count = Annotated[int, Field(ge=0, le=10_000)]
Kinds = Annotated[dict[Annotated[str, Field(min_length=1, max_length=64)], Count], Field(max_length=32)]
Names = Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=100)]


class PoolNotFound(TaskError):
    """There is no such pool, or its lease has ended; create it with POST /v1/pools, and renew it in time."""

    code = "pool_not_found"


class PoolRequest(Strict):
    """A pool to be made, or changed and renewed."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Kept in lower case")]
    gpus: Annotated[
        Kinds | None, Field(description="The pool is `pending` until so many workers of each kind live")
    ] = None
    minimum_worker_count: Annotated[
        Count | None, Field(description="The pool is `pending` until so many workers live")
    ] = None
    pinned_models: Annotated[Names | None, Field(description="Refused for those that the catalog does not pin")] = None
    bundle: Annotated[Literal["default"] | None, Field(description="There is one: all workers serve all models")] = None
    queue_pool: Annotated[Literal["default"] | None, Field(description="There is one")] = None
    gpu_caps: Annotated[Kinds | None, Field(description="Refused: no worker can be kept from a job")] = None


class PoolSpec(Reply):
    """What was asked for."""

    name: str
    queue_pool: str
    gpus: dict[str, int]
    gpu_caps: dict[str, int]
    bundle: str
    minimum_worker_count: int
    pinned_models: list[str]


class PoolWorker(Reply):
    """A worker that takes the pool's jobs, and all others."""

    name: str
    url: str
    gpu: str
    bundle: str


class PoolStatus(Reply):
    """How it stands. Times are Unix seconds."""

    state: Literal["pending", "active"]
    assigned_workers: list[PoolWorker]
    created_at: float
    last_renewed: float


class PoolObject(Reply):
    """A pool."""

    name: str
    spec: PoolSpec
    status: PoolStatus


class PoolItem(Reply):
    """A pool in a list."""

    name: str
    state: Literal["pending", "active"]
    gpus: dict[str, int]
    worker_count: int


class PoolList(Reply):
    """All pools, by name."""

    pools: list[PoolItem]


class PoolDeleted(Reply):
    """The name of a pool that is gone."""

    name: str
    deleted: bool


def _create_signature(body: PoolRequest) -> None: ...


def _name_signature(name: Annotated[str, InPath(description="The pool's name")]) -> None: ...


@router.post(
    "/v1/pools",
    summary="Make a pool",
    status_code=201,
    response_model=PoolObject,
    responses={
        200: {"model": PoolObject, "description": "It was there: changed and renewed"},
        **errors.errors(404, 408, 413, 415, 503),
    },
)
@documented(_create_signature)
async def create(request: Request) -> Response:
    """A named lease of five minutes, which each repeat and each renewal begins anew. It reserves nothing.

    `status` tells the live workers. What cannot be kept is refused: `gpu_caps`, another `bundle` or `queue_pool`, and
    `pinned_models` that the catalog does not pin.
    """
    read_query(request, NoQuery)
    it = services(request)
    body = await read_body(request, MAX_BODY_BYTES)
    asked = read_pool(body.value)
    pinned = asked.pinned_models or []
    await _check_pinned(it, pinned)
    store, now, name = PoolStore(it.redis), it.clock(), asked.name.lower()
    before = await store.get(name)
    pool = Pool(
        name=name,
        created=now if before is None else before.created,
        renewed=now,
        gpus={kind.lower(): count for kind, count in (asked.gpus or {}).items()},
        minimum_workers=asked.minimum_worker_count or 0,
        pinned_models=tuple(pinned),
    )
    await store.put(pool)
    return _reply(pool_object(pool, await it.presence.live()), 201 if before is None else 200)


@router.get("/v1/pools", summary="List pools", response_model=PoolList, responses=errors.errors(503))
async def listing(request: Request) -> Response:
    """The pools whose leases run."""
    read_query(request, NoQuery)
    it = services(request)
    workers = await it.presence.live()
    pools = await PoolStore(it.redis).all(it.clock())
    items = [
        {"name": pool.name, "state": state_of(pool, workers), "gpus": dict(pool.gpus), "worker_count": _able(workers)}
        for pool in pools
    ]
    return _reply({"pools": items})


@router.get("/v1/pools/{name}", summary="Look at a pool", response_model=PoolObject, responses=errors.errors(404, 503))
@documented(_name_signature)
async def look(request: Request) -> Response:
    """A pool and the live workers, all of which take its jobs."""
    read_query(request, NoQuery)
    it = services(request)
    return _reply(pool_object(await _find(it, request), await it.presence.live()))


@router.post(
    "/v1/pools/{name}/renew", summary="Renew a pool", response_model=PoolObject, responses=errors.errors(404, 503)
)
@documented(_name_signature)
async def renew(request: Request) -> Response:
    """Begin the lease anew: five minutes from now."""
    read_query(request, NoQuery)
    it = services(request)
    pool = replace(await _find(it, request), renewed=it.clock())
    await PoolStore(it.redis).put(pool)
    return _reply(pool_object(pool, await it.presence.live()))


@router.delete(
    "/v1/pools/{name}", summary="Delete a pool", response_model=PoolDeleted, responses=errors.errors(404, 503)
)
@documented(_name_signature)
async def delete(request: Request) -> Response:
    """End the lease. No job is touched."""
    read_query(request, NoQuery)
    name = request.path_params["name"].lower()
    if not await PoolStore(services(request).redis).delete(name):
        raise PoolNotFound(param="name")
    return _reply({"name": name, "deleted": True})


async def check_place(it: Services, headers: Mapping[str, str]) -> None:
    """Where a request of the peer's client wants to run, by its headers: a pool and a machine profile.

    A pool must be there, and a profile be that of a live worker, by the names of `/health`. Neither binds the job: it
    runs on whichever worker takes it first. Raises PoolNotFound, InvalidRequest, BrokerUnavailable.
    """
    name, profile = headers.get(POOL_HEADER), headers.get(PROFILE_HEADER)
    if name and name.lower() != QUEUE_POOL and await PoolStore(it.redis).get(name.lower()) is None:
        raise PoolNotFound(f"There is no pool {name[:100]!r}; create it with POST /v1/pools.", param=POOL_HEADER)
    if profile:
        live = gpu_types(await it.presence.lately(LOOK_S))
        # With nobody there the job waits for whoever comes.
        if live and profile.lower() not in live:
            raise InvalidRequest(
                f"No live worker is of the machine profile {profile[:100]!r}; there are: {', '.join(live)}.",
                param=PROFILE_HEADER,
            )


def read_pool(raw: object) -> PoolRequest:
    """The request in a decoded body. Raises InvalidRequest, naming the field."""
    asked = shaped(PoolRequest, raw)
    if asked.gpu_caps:
        raise InvalidRequest("'gpu_caps' cannot be kept: every worker takes every job. Leave it out.", param="gpu_caps")
    return asked


def pool_object(pool: Pool, workers: Sequence[Worker]) -> dict[str, Any]:
    """The peer's `PoolResponse`."""
    return {
        "name": pool.name,
        "spec": {
            "name": pool.name,
            "queue_pool": QUEUE_POOL,
            "gpus": dict(pool.gpus),
            "gpu_caps": {},
            "bundle": BUNDLE,
            "minimum_worker_count": pool.minimum_workers,
            "pinned_models": list(pool.pinned_models),
        },
        "status": {
            "state": state_of(pool, workers),
            "assigned_workers": [
                {"name": worker.name, "url": "", "gpu": gpu_of(worker), "bundle": BUNDLE}
                for worker in workers
                if not worker.lost
            ],
            "created_at": pool.created,
            "last_renewed": pool.renewed,
        },
    }


def state_of(pool: Pool, workers: Sequence[Worker]) -> Literal["pending", "active"]:
    """`active` while the live workers are as many as were asked for, of each kind and in all, and at least one."""
    kinds = [gpu_of(worker) for worker in workers if not worker.lost]
    enough = all(kinds.count(kind) >= count for kind, count in pool.gpus.items())
    return "active" if enough and len(kinds) >= max(1, pool.minimum_workers) else "pending"


def _able(workers: Sequence[Worker]) -> int:
    return sum(not worker.lost for worker in workers)


async def _check_pinned(it: Services, names: Sequence[str]) -> None:
    """Nothing is pinned on a caller's word. Raises a CatalogError for an unknown model, InvalidRequest for others."""
    for place, name in enumerate(names):
        await it.asking.meet(name)
        choice = it.catalog.look_up(name)
        if not choice.spec.stay.pinned:
            raise InvalidRequest(
                f"{choice.spec.id!r} is not pinned, and a pool pins nothing: set 'stay.pinned' in its YAML, "
                "or leave it out here.",
                param=f"pinned_models[{place}]",
            )


async def _find(it: Services, request: Request) -> Pool:
    pool = await PoolStore(it.redis).get(request.path_params["name"].lower())
    if pool is None:
        raise PoolNotFound(param="name")
    return pool


def _reply(body: Mapping[str, Any], status: int = 200) -> Response:
    return Response(dumps(body), status_code=status, media_type=Media.JSON.value)
