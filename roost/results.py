"""The result of a job: one `Item` for each input, in the order of the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from roost.arrays import Array, SparseVector, dense_of, multivector_of, sparse_of
from roost.errors import ItemFailed, NoSuchValue, told
from roost.job_info import JobInfo

_ARRAYS = ("dense", "sparse", "multivector")


@dataclass(frozen=True, slots=True)
class Item:
    """What came of one input: the values of its verb, or its `error`.

    A value of a failed item raises ItemFailed, and one that was not asked for NoSuchValue. `fields` is all that the
    server told; arrays in it are bytes.
    """

    index: int
    fields: Mapping[str, Any]

    @property
    def id(self) -> str | None:
        """Yours, if you gave one."""
        return self.fields.get("id")

    @property
    def error(self) -> ItemFailed | None:
        """Why this item failed; None if it did not."""
        error = self.fields.get("error")
        return None if error is None else ItemFailed(**told(error))

    @property
    def ok(self) -> bool:
        """Whether it has values."""
        return "error" not in self.fields

    def __getitem__(self, name: str) -> Any:
        if (error := self.error) is not None:
            raise error
        try:
            return self.fields[name]
        except KeyError:
            there = ", ".join(self.fields)
            raise NoSuchValue(f"Item {self.index} has no {name!r}; it has {there}.", param=name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """A value by its name, or `default` where the item has none or has failed."""
        return self.fields.get(name, default)

    @property
    def vector(self) -> Array:
        """Its dense vector with dims, dtype and scale."""
        return dense_of(self["dense"])

    @property
    def dense(self) -> NDArray[Any]:
        """Its dense vector in the dtype that was asked for: (dims,), or for bits (dims / 8,)."""
        return self.vector.values

    @property
    def sparse(self) -> SparseVector:
        """Its sparse vector."""
        return sparse_of(self["sparse"])

    @property
    def multivector(self) -> Array:
        """A vector for each of its tokens, as rows."""
        return multivector_of(self["multivector"])

    @property
    def score(self) -> float:
        """How it scored against the query."""
        return float(self["score"])

    @property
    def rank(self) -> int | None:
        """Its place among the items of a score; the best has 0."""
        rank: int | None = self.get("rank")
        return rank

    @property
    def text(self) -> str:
        """What was generated."""
        return str(self["text"])

    @property
    def entities(self) -> list[dict[str, Any]]:
        """`text`, `label`, `score`, `start`, `end` of each; offsets are characters of Python."""
        return list(self["entities"])

    @property
    def relations(self) -> list[dict[str, Any]]:
        """`head`, `tail`, `relation`, `score` of each."""
        return list(self["relations"])

    @property
    def classifications(self) -> list[dict[str, Any]]:
        """`label` and `score` of each."""
        return list(self["classifications"])

    @property
    def objects(self) -> list[dict[str, Any]]:
        """`label`, `score` and `bbox` ([left, top, width, height] in pixels) of each."""
        return list(self["objects"])

    @property
    def data(self) -> Mapping[str, Any]:
        """The fields of a structure, a document, a transcript."""
        found: Mapping[str, Any] = self["data"]
        return found

    def plain(self) -> dict[str, Any]:
        """All of it as JSON has it: arrays as lists of numbers."""
        found = dict(self.fields)
        for name in _ARRAYS:
            if name in found:
                found[name] = _listed(name, found[name])
        return found


@dataclass(frozen=True, slots=True)
class Result(Sequence[Item]):
    """A job's result: a sequence of its items."""

    job_id: str
    model: str
    items: list[Item]
    scores: list[dict[str, Any]] | None = None
    """Of a score the ranking, best first: `index`, `score`, `rank` and your `item_id`."""
    usage: Mapping[str, int] | None = None
    job: JobInfo | None = field(default=None, compare=False)
    """The job, where the same answer told of it: its timings, cost and worker."""

    @classmethod
    def of(cls, body: Mapping[str, Any], job: JobInfo | None = None) -> Result:
        """From the result of a reply."""
        items = items_of(body["items"])
        return cls(body["id"], body["model"], items, body.get("scores"), body.get("usage"), job)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return self.items[index]

    @property
    def failed(self) -> list[Item]:
        """The items that have an error."""
        return [item for item in self.items if not item.ok]

    @property
    def dense(self) -> NDArray[Any]:
        """All dense vectors as rows, in the dtype that was asked for. Raises ItemFailed if one is missing."""
        return np.stack([item.dense for item in self.items])

    @property
    def floats(self) -> NDArray[np.float32]:
        """All dense vectors as rows of float32: integers by their scale, bits as 1 and 0. Raises ItemFailed."""
        return np.stack([item.vector.floats for item in self.items])

    @property
    def bits(self) -> NDArray[np.bool_]:
        """All dense vectors as rows of truths, one for each dimension. Raises ItemFailed."""
        return np.stack([item.vector.bits for item in self.items])

    @property
    def texts(self) -> list[str]:
        """All that was generated. Raises ItemFailed if one failed."""
        return [item.text for item in self.items]

    def plain(self) -> dict[str, Any]:
        """All of it as `GET /v1/jobs/{id}/result` has it in JSON."""
        ranking = {} if self.scores is None else {"scores": self.scores}
        return {
            "id": self.job_id,
            "object": "result",
            "status": "succeeded",
            "model": self.model,
            "items": [item.plain() for item in self.items],
            **ranking,
            "usage": self.usage,
        }


def items_of(rows: Sequence[Mapping[str, Any]] | None) -> list[Item]:
    """The items of a reply; none where the job did not get that far."""
    return [Item(index, row) for index, row in enumerate(rows or ())]


def _listed(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    if name == "sparse":
        sparse = sparse_of(told)
        return {**told, "indices": sparse.indices.tolist(), "values": _numbers(sparse.values)}
    array = dense_of(told) if name == "dense" else multivector_of(told)
    return {**told, "values": _numbers(array.values)}


def _numbers(values: NDArray[Any]) -> Any:
    """As JSON has them: of a float the fewest digits that tell it from its neighbours in its own dtype."""
    return values.tolist() if values.dtype.kind in "iu" else values.astype(str).astype(np.float64).tolist()
