from __future__ import annotations

import time
from typing import Any

import msgpack
import pytest

from catalog.errors import CatalogError, InvalidOption, RoostError, UnknownModel, UnsupportedVerb
from catalog.lengths import TURN_TOKENS
from catalog.loader import Catalog
from catalog.schema import (
    CostCoefficients,
    EncodeFacts,
    ExtractFacts,
    ExtractKind,
    GenerateFacts,
    Profile,
    ScoreFacts,
    Spec,
    Tasks,
)
from catalog.tokenizer import Counts
from tasks.errors import InvalidRequest, LimitExceeded, TaskError
from tasks.inputs import read_inputs
from tasks.messages import Submission, Webhook
from tasks.prepare import Checked, Limits, body_hash, check, check_key, job_id, price
from tasks.request import parse_request

LIMITS = Limits(max_items=10, max_text_chars=1000, default_retention_s=600, max_retention_s=6000)
COST = CostCoefficients(base=4.0, per_token=1.0)
SPEC = Spec(
    id="org/model",
    family="fake",
    tasks=Tasks(encode=EncodeFacts(dims=4, prompts={"query": "query: "})),
    parameters=0,
    max_length=100,
    profiles={"strict": Profile(run={"truncate": False})},
)
SCORER = Spec(id="org/scorer", family="fake", tasks=Tasks(score=ScoreFacts()), parameters=0, max_length=100)
CATALOG = Catalog([SPEC, SCORER])
NOW = 1_700_000_000.25


def checked(**fields: Any) -> Checked:
    return check(parse_request({"verb": "encode", "model": "org/model", "items": ["a"], **fields}, 10), CATALOG, LIMITS)


def priced(counts: list[int], *, exact: bool = True, key: str | None = None, **fields: Any) -> Submission:
    return price(checked(**fields), Counts(counts, exact), now=NOW, cost=COST, key=key)


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownModel, match="org/model") as caught:
        checked(model="org/modle")
    assert caught.value.param == "model"


def test_a_verb_that_the_model_does_not_do_is_refused_with_those_it_does() -> None:
    with pytest.raises(UnsupportedVerb, match="does not score; it does: encode"):
        checked(verb="score", query="q")


def test_an_option_is_checked_against_the_model() -> None:
    with pytest.raises(InvalidOption) as caught:
        checked(options={"dimensions": 3})
    assert caught.value.param == "options.dimensions"


def test_nul_in_an_option_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"U\+0000") as caught:
        checked(options={"instruction": "a\0b"})
    assert caught.value.param == "options.instruction"


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", "\u3000"])
def test_a_blank_text_is_a_fault_of_its_item_alone(blank: str) -> None:
    job = priced([3, 4], items=["cat", blank, "dog"])
    assert job.faults[1]["code"] == "empty_text"
    assert list(job.faults) == [1]
    assert list(job.lengths) == [3, 0, 4]
    assert job.costs[1] == 0.0
    assert job.costs[0] > 0


def test_all_items_keep_their_places_and_ids() -> None:
    job = priced([3, 3], items=[{"id": "a", "text": "cat"}, "", {"id": "a", "text": "x"}])
    assert msgpack.unpackb(job.inputs) == [{"id": "a", "text": "cat"}, {"text": ""}, {"id": "a", "text": "x"}]


def test_nul_in_a_text_is_kept() -> None:
    assert msgpack.unpackb(priced([3], items=["a\0b"]).inputs) == [{"text": "a\0b"}]


@pytest.mark.parametrize("options", [{"prompt": "query"}, {"instruction": "query: "}])
def test_what_is_counted_has_the_prompt_in_front(options: dict[str, str]) -> None:
    found = checked(options=options, items=["cat", "", "dog"])
    assert list(found.texts) == ["query: cat", "query: dog"]
    assert list(found.places) == [0, 2]


def test_a_text_over_the_models_length_counts_as_long_as_the_model_reads() -> None:
    assert list(priced([500]).lengths) == [100]


def test_a_text_over_the_models_length_is_a_fault_with_both_counts_if_it_may_not_be_cut() -> None:
    job = priced([100, 500], items=["a", "b"], options={"truncate": False})
    assert job.faults[1] == {
        "code": "text_too_long",
        "message": "'items[1]' has 500 tokens and the model reads 100; shorten it or send 'truncate': true.",
        "param": "items[1]",
        "retryable": False,
    }
    assert list(job.lengths) == [100, 0]


def test_a_profiles_own_options_hold() -> None:
    assert 0 in priced([500], model="org/model:strict").faults
    assert 0 not in priced([500], model="org/model:strict", options={"truncate": True}).faults


def test_an_estimate_refuses_no_text() -> None:
    assert not priced([500], exact=False, options={"truncate": False}).faults


def test_the_cost_is_what_the_job_takes_alone() -> None:
    job = priced([10, 20], items=["a", "b"])
    assert sum(job.costs) == pytest.approx(4.0 + 30.0)
    assert job.bucket == "s"


def test_a_job_whose_items_all_fail_at_the_door_costs_nothing() -> None:
    job = priced([], items=["", " "])
    assert (job.cost_ms, job.bucket, len(job.faults)) == (0.0, "xs", 2)


def test_a_text_over_the_servers_limit_is_refused_with_its_place() -> None:
    with pytest.raises(LimitExceeded, match="limit of this server is 1000") as caught:
        checked(items=["a", {"text": "x" * 1001}])
    assert caught.value.param == "items[1].text"


def test_a_retention_over_the_servers_limit_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 6000"):
        checked(retention_s=6001)


def test_the_submission_carries_what_was_asked() -> None:
    job = priced([1], lane="bulk", priority=9, deadline_s=1.5, tags=["x"], retention_s=60, model="model:strict")
    assert (job.lane, job.priority, job.deadline, job.tags, job.retention_s) == ("bulk", 9, NOW + 1.5, ["x"], 60)
    assert (job.model, job.created, job.stored) == ("org/model:strict", NOW, True)


def test_the_retention_has_a_default() -> None:
    assert priced([1]).retention_s == 600


def test_who_is_told_goes_along_and_is_shown_nowhere() -> None:
    hook: dict[str, Any] = {"url": "https://example.org/?token=s3cret", "secret": "whsec_" + "c3Nz" * 8, "inline": True}
    job = priced([1], webhook=hook)
    assert job.webhook == Webhook(hook["url"], b"sss" * 8, inline=True)
    assert "sss" not in repr(job)
    assert "s3cret" not in repr(job)
    assert priced([1]).webhook is None


@pytest.mark.parametrize(
    ("hook", "param"),
    [
        ({"url": "https://10.0.0.1/"}, "webhook.url"),
        ({"url": "https://example.org/", "secret": "whsec_c3Nz"}, "webhook.secret"),
    ],
)
def test_a_receiver_that_cannot_be_told_refuses_the_job_before_its_texts_are_counted(
    hook: dict[str, str], param: str
) -> None:
    with pytest.raises(TaskError, match=param) as caught:
        checked(webhook=hook)
    assert caught.value.param == param
    assert "10.0" not in caught.value.message
    assert "c3Nz" not in caught.value.message


def test_ids_are_version_7_and_sort_by_time() -> None:
    first, second = job_id(NOW), job_id(NOW + 0.001)
    assert (first.version, first.variant) == (7, "specified in RFC 4122")
    assert first < second
    assert first.int >> 80 == int(NOW * 1000)


def test_two_ids_of_one_moment_differ() -> None:
    assert len({job_id(NOW) for _ in range(100)}) == 100


def test_requests_of_one_meaning_have_one_hash() -> None:
    short = {"verb": "encode", "model": "m", "items": ["a"]}
    long = {"items": [{"text": "a"}], "model": "m", "verb": "encode", "lane": "interactive", "priority": 5, "tags": []}
    assert body_hash(parse_request(short, 10)) == body_hash(parse_request(long, 10))


@pytest.mark.parametrize(
    "change",
    [
        {"items": ["b"]},
        {"items": [{"id": "", "text": "a"}]},
        {"priority": 6},
        {"options": {"normalize": True}},
        {"store": False},
        {"webhook": {"url": "https://example.org/"}},
    ],
)
def test_another_meaning_has_another_hash(change: dict[str, Any]) -> None:
    plain = {"verb": "encode", "model": "m", "items": ["a"]}
    assert body_hash(parse_request(plain, 10)) != body_hash(parse_request({**plain, **change}, 10))


def test_a_field_that_came_later_leaves_the_hashes_of_keys_in_use_as_they_were() -> None:
    plain = parse_request({"verb": "encode", "model": "m", "items": ["a"]}, 10)
    assert body_hash(plain).hex() == "caef404310637df3e63fe8e884b61ab3504898ab6d37aea411b793b8bf5500f0"


def test_a_hash_is_made_for_keyed_jobs_only() -> None:
    assert priced([1]).body_hash is None
    assert len(priced([1], key="k").body_hash or b"") == 32


def _nested(depth: int) -> object:
    value: object = "a"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("name", ["x", "prompt", "instruction", "normalize", "dimensions", "output_dtype"])
@pytest.mark.parametrize(
    "value", [_nested(1000), ["a\0"] * 1_000_000, dict.fromkeys(map(str, range(300_000))), {"a": _nested(1000)}]
)
def test_an_option_of_a_wrong_type_is_refused_without_a_look_inside(name: str, value: object) -> None:
    start = time.process_time()
    with pytest.raises(InvalidOption) as caught:
        checked(options={name: value})
    assert time.process_time() - start < 0.1
    assert caught.value.param == f"options.{name}"
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("key", ["", "x" * 257, "ä", "a\0b", "a\tb"])
def test_a_bad_idempotency_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_key(key)
    assert caught.value.param == "Idempotency-Key"


def test_a_good_idempotency_key_passes() -> None:
    assert check_key("order 1/2") == "order 1/2"
    assert check_key(None) is None


_GRAMMAR = "options.grammar.json_schema"
GENERATOR = Spec(
    id="org/writer",
    family="fake",
    tasks=Tasks(generate=GenerateFacts(max_new_tokens=20)),
    parameters=0,
    max_length=100,
    inputs=("text", "messages", "image"),
    image_length=30,
)
FINDER = Spec(
    id="org/finder",
    family="fake",
    tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.ENTITIES, ExtractKind.STRUCTURE))),
    parameters=0,
    max_length=100,
)
VERBS = Catalog([SPEC, SCORER, GENERATOR, FINDER])


def of_verb(verb: str, model: str, counts: list[int], *, cost: CostCoefficients = COST, **fields: Any) -> Submission:
    request = parse_request({"verb": verb, "model": model, **fields}, 10)
    found = check(request, VERBS, LIMITS)
    assert len(found.texts) == len(counts)
    return price(found, Counts(counts, exact=True), now=NOW, cost=cost)


def refusal(verb: str, model: str, **fields: Any) -> RoostError:
    with pytest.raises((TaskError, CatalogError)) as caught:
        check(parse_request({"verb": verb, "model": model, "items": ["a"], **fields}, 10), VERBS, LIMITS)
    return caught.value


def test_the_query_is_a_part_of_every_pair_and_is_written_once() -> None:
    job = of_verb("score", "org/scorer", [7, 10, 20], query="what", items=["a", {"id": "b", "text": "c"}])
    assert list(job.lengths) == [17, 27]
    assert job.cost_ms == pytest.approx(4.0 + 17 + 27)
    assert read_inputs(job.inputs) == [
        {"text": "a", "query": {"text": "what"}},
        {"id": "b", "text": "c", "query": {"text": "what"}},
    ]
    assert job.inputs.count(b"what") == 1


def test_a_pair_over_the_models_length_is_cut_or_fails_alone() -> None:
    pair: dict[str, Any] = {"query": "what", "items": ["a", "b"]}
    assert list(of_verb("score", "org/scorer", [60, 60, 10], **pair).lengths) == [100, 70]
    strict = of_verb("score", "org/scorer", [60, 60, 10], options={"truncate": False}, **pair)
    assert strict.faults[0]["code"] == "text_too_long"
    assert "'items[0]' has 120 tokens, the query with it, and the model reads 100" in strict.faults[0]["message"]
    assert list(strict.lengths) == [0, 70]


@pytest.mark.parametrize("query", ["", " \n", {"id": "q", "text": "\t"}])
def test_a_blank_query_refuses_the_whole(query: object) -> None:
    error = refusal("score", "org/scorer", query=query)
    assert (error.code, error.param) == ("empty_text", "query")


def test_a_blank_item_of_a_score_fails_alone_and_one_of_an_extraction_does_not() -> None:
    assert list(of_verb("score", "org/scorer", [3, 3], query="q", items=["", "a"]).faults) == [0]
    job = of_verb("extract", "org/finder", [3], items=["", "a"])
    assert not job.faults
    assert list(job.lengths) == [1, 3]


def test_a_long_text_of_an_extraction_is_never_too_long_and_costs_its_windows() -> None:
    one, three = (of_verb("extract", "org/finder", [count], items=["a"]) for count in (100, 300))
    assert list(three.lengths) == [100]
    assert not three.faults
    assert three.cost_ms == pytest.approx(3 * one.cost_ms)


def test_new_tokens_are_a_part_of_the_price() -> None:
    cost = CostCoefficients(base=0.0, per_token=1.0, per_new=10.0)
    default = of_verb("generate", "org/writer", [5], cost=cost, items=["a"])
    few = of_verb("generate", "org/writer", [5], cost=cost, items=["a"], options={"max_tokens": 3})
    assert default.cost_ms == pytest.approx(5 + 20 * 10)
    assert few.cost_ms == pytest.approx(5 + 3 * 10)


def test_images_and_turns_count_beside_the_texts() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "image": {"data": b"x"}}]},
        {"role": "assistant", "content": "b"},
    ]
    job = of_verb("generate", "org/writer", [3, 4], items=[{"messages": messages}])
    assert list(job.lengths) == [3 + 4 + 30 + 2 * TURN_TOKENS]


@pytest.mark.parametrize(
    ("verb", "model", "fields", "param"),
    [
        ("score", "org/scorer", {}, "query"),
        ("score", "org/scorer", {"query": {"id": "q"}}, "query.text"),
        ("score", "org/scorer", {"query": {"text": "q", "multivector": [[1.0]]}}, "query.multivector"),
        ("score", "org/scorer", {"query": "q", "items": []}, "items"),
        ("score", "org/scorer", {"query": "q", "options": {"top_n": -1}}, "options.top_n"),
        ("encode", "org/model", {"query": "q"}, "query"),
        ("encode", "org/model", {"labels": ["a"]}, "labels"),
        ("encode", "org/model", {"items": [{"images": [{"data": b"x"}]}]}, "items[0]"),
        ("extract", "org/finder", {"labels": ["a"], "options": {"labels": ["b"]}}, "labels"),
        ("extract", "org/finder", {"labels": [""]}, "labels[0]"),
        ("extract", "org/finder", {"labels": ["a\0"]}, "labels[0]"),
        ("extract", "org/finder", {"options": {"labels": ["a\0"]}}, "options.labels[0]"),
        ("extract", "org/finder", {"labels": ["a"] * 1001}, "labels"),
        ("extract", "org/finder", {"options": {"ocr": True}}, "options.ocr"),
        ("extract", "org/finder", {"options": {"threshold": "NaN"}}, "options.threshold"),
        (
            "extract",
            "org/finder",
            {"output_schema": {"type": "object", "properties": {"a": {"type": "strng"}}}},
            "output_schema.properties.a.type",
        ),
        ("generate", "org/writer", {"options": {"grammar": {"json_schema": {"enum": []}}}}, _GRAMMAR + ".enum"),
        ("generate", "org/writer", {"options": {"max_tokens": 100}}, "options.max_tokens"),
        ("generate", "org/writer", {"options": {"tools": [{}]}}, "options.tools"),
    ],
)
def test_what_is_wrong_for_a_verb_is_named(verb: str, model: str, fields: dict[str, Any], param: str) -> None:
    error = refusal(verb, model, **fields)
    assert error.param == param
    assert "'" in error.message


def test_a_schema_in_a_models_own_form_is_left_to_the_model() -> None:
    schema = {"person": ["name::str", "age::int"]}
    job = of_verb("extract", "org/finder", [3], items=["a"], output_schema=schema)
    assert job.options == {"output_schema": schema}


def test_what_has_a_field_of_its_own_is_an_option_all_the_same() -> None:
    job = of_verb("extract", "org/finder", [3], items=["a"], labels=["person"], options={"threshold": 0.5})
    assert job.options == {"threshold": 0.5, "labels": ["person"]}


@pytest.mark.parametrize("change", [{"query": "r"}, {"items": [{"text": "a", "id": "x"}]}, {"options": {"top_n": 1}}])
def test_the_meaning_of_a_score_has_its_query_in_it(change: dict[str, Any]) -> None:
    plain = {"verb": "score", "model": "m", "query": "q", "items": ["a"]}
    assert body_hash(parse_request(plain, 10)) == body_hash(parse_request({**plain, "query": {"text": "q"}}, 10))
    assert body_hash(parse_request(plain, 10)) != body_hash(parse_request({**plain, **change}, 10))


def test_files_of_other_bytes_are_another_request() -> None:
    one, other = ({"verb": "extract", "model": "m", "items": [{"document": {"data": data}}]} for data in (b"a", b"b"))
    assert body_hash(parse_request(one, 10)) != body_hash(parse_request(other, 10))
