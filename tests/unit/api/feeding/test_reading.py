from __future__ import annotations

import pytest

from api.errors import InvalidJson
from api.feeding.reading import loads
from api.values import MOST_CONTAINERS
from tasks.errors import LimitExceeded
from tasks.lines import BadLine, RawLine, Rules, read_line


@pytest.mark.parametrize(
    ("data", "param", "said"),
    [
        (rb'{"body": {"input": "\ud83d"}}', "body.input", "'body.input' holds half of a surrogate pair"),
        (b'{"body": {"temperature": NaN}}', "body.temperature", "'body.temperature' must be a finite number"),
        (rb'{"custom_id": "\ude00"}', "custom_id", "'custom_id' holds half"),
        (b'{"body": ', None, "it is not valid JSON: "),
    ],
)
def test_what_is_no_json_names_the_field_if_one_is_at_fault(data: bytes, param: str | None, said: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        loads(data)

    assert refused.value.param == param
    assert refused.value.message.startswith(said)


def test_a_line_of_too_many_values_is_refused_by_its_number_before_it_is_decoded() -> None:
    data = b'{"body": ' + b"[" + b"[]," * MOST_CONTAINERS + b"[]]}"
    rules = Rules("/v1/embeddings", 1, len(data), loads)

    with pytest.raises(LimitExceeded):
        loads(data)
    with pytest.raises(BadLine, match="Line 3: ") as refused:
        read_line(RawLine(3, 0, len(data), data), rules)
    assert (refused.value.fault.code, refused.value.fault.param) == (LimitExceeded.code, "body")
