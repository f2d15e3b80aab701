"""TEI's routes, each twice: below /tei/{model}, and at the root, where ROOST_TEI_MODELS says which model is meant.

A client is moved by its URL alone: `http://host/tei/BAAI/bge-m3` is a TEI that serves this model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from api.compat.dialect import route_class
from api.compat.tei import embed, predict, rerank
from api.compat.tei.errors import CALL_ERRORS, errors, render
from api.compat.tei.info import KINDS, TeiInfo, info
from api.compat.tei.work import Work, answer, chosen
from api.media import Media, dumps
from api.model_objects import find_model
from api.readiness import NotReady, missing
from api.route import Handler, documented
from api.services import services
from catalog.errors import CatalogError, UnknownModel
from tasks.errors import TaskError

router = APIRouter(route_class=route_class(render), tags=["tei"])

Model = Annotated[str, Path(description="An id of the catalog, `:profile` after it or not; `__` will do for its slash")]

_Vectors = list[list[float]]
_Predictions = list[predict.Prediction] | list[list[predict.Prediction]]
_Sparse = list[list[embed.SparseValue]]
_Any = _Vectors | _Sparse | _Predictions | list[rerank.Rank] | list[float]
_AnyRequest = embed.EmbedRequest | embed.SimilarityRequest | predict.PredictRequest | rerank.TeiRerankRequest


def by_body(body: Mapping[str, Any]) -> Sequence[Work]:
    """What a body without a route of its own may ask for: the model's kind decides between those."""
    if "query" in body or "texts" in body:
        return (rerank.RERANK,)
    if isinstance(body.get("inputs"), dict):
        return (embed.SIMILARITY,)
    if isinstance(parameters := body.get("parameters"), dict) and "candidate_labels" in parameters:
        return (predict.PREDICT,)
    return (embed.EMBED, embed.EMBED_SPARSE, predict.PREDICT)


def _signed(handler: Handler, body: Any, *, in_path: bool) -> Handler:
    """The handler with its body in OpenAPI, and the model where it is in the path."""

    def signature(**_: Any) -> None: ...

    taken = {"model": Model, "body": body} if in_path else {"body": body}
    signature.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in taken.items()]
    )
    return documented(signature)(handler)


class NoSuchRoute(TaskError):
    """The path goes on after the model by what is no route."""

    code = "route_not_found"


async def _check_route(request: Request) -> None:
    """Raise NoSuchRoute where the path, less its last part, does name a model."""
    model, _, last = request.path_params.get("model", "").rpartition("/")
    try:
        await find_model(services(request), model)
    except CatalogError:
        return
    start = "/tei/{model:path}/"
    paths = [route.path for route in router.routes if isinstance(route, Route)]
    below = ", ".join(path.removeprefix(start) for path in paths if path.startswith(start))
    raise NoSuchRoute(f"There is no {last[:100]!r} below /tei/{model}; there are: {below}.")


def _add(
    path: str, works_of: Callable[[Mapping[str, Any]], Sequence[Work]], body: Any, reply: Any, summary: str
) -> None:
    """Both routes of one call."""
    for start in ("/tei/{model:path}", ""):

        async def handle(request: Request) -> Response:
            try:
                return await answer(request, works_of)
            except UnknownModel:
                if works_of is by_body:
                    await _check_route(request)
                raise

        handle.__name__ = f"tei{path.replace('/', '_')}"
        router.post(
            (start + path).rstrip("/") or "/",
            summary=summary,
            description=f"{summary}, as one job. The model is that of the path, or of `ROOST_TEI_MODELS`.",
            response_model=reply,
            responses=CALL_ERRORS,
        )(_signed(handle, body, in_path=bool(start)))


_add("/embed", lambda _: (embed.EMBED,), embed.EmbedRequest, _Vectors, "Embed texts, as TEI does")
_add(
    "/embed_sparse",
    lambda _: (embed.EMBED_SPARSE,),
    embed.EmbedSparseRequest,
    _Sparse,
    "Embed texts sparsely, as TEI does",
)
_add("/embed_all", lambda _: (embed.EMBED_ALL,), embed.EmbedAllRequest, list[_Vectors], "Embed each token, as TEI does")
_add(
    "/similarity",
    lambda _: (embed.SIMILARITY,),
    embed.SimilarityRequest,
    list[float],
    "Compare a text with others, as TEI does",
)
_add(
    "/rerank",
    lambda _: (rerank.RERANK,),
    rerank.TeiRerankRequest,
    list[rerank.Rank],
    "Rank texts by a query, as TEI does",
)
_add("/predict", lambda _: (predict.PREDICT,), predict.PredictRequest, _Predictions, "Classify texts, as TEI does")


def _model_signature(model: Model) -> None: ...


@router.get(
    "/info", summary="Tell of the model of TEI's routes", response_model=TeiInfo, responses=errors(404, 422, 424)
)
async def tell(request: Request) -> Response:
    """The model of the path, or the first of `ROOST_TEI_MODELS`, in TEI's words."""
    name, work = await chosen(request, KINDS)
    it = services(request)
    return Response(dumps(info(await find_model(it, name), work, it.settings)), media_type=Media.JSON.value)


@router.get(
    "/tei/{model:path}/info",
    summary="Tell of a model, as TEI does",
    response_model=TeiInfo,
    responses=errors(404, 422, 424),
)
@documented(_model_signature)
async def tell_of(request: Request) -> Response:
    """A model in TEI's words."""
    return await tell(request)


@router.get(
    "/tei/{model:path}/health",
    summary="Whether a model can be asked",
    response_class=PlainTextResponse,
    responses=errors(404, 422, 503),
)
@documented(_model_signature)
async def healthy(request: Request) -> Response:
    """200 while jobs can run, 503 while they cannot; 404 for a model that there is not."""
    it = services(request)
    await find_model(it, request.path_params["model"])
    if reasons := await missing(it):
        raise NotReady(" ".join(reasons.values()))
    return PlainTextResponse("ok")


# Last: its path fits those of all others, too.
_add("/", by_body, _AnyRequest, _Any, "Embed, classify or rank by the model's kind, as TEI does")
