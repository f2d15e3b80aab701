"""The body of POST /v1/responses, and the generate job that it asks for. Pure.

Nothing is remembered from one response to the next: `input` holds the whole conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from api.compat.endpoints import Asked
from api.compat.openai.chat_request import MAX_TOOLS, THOUGHTLESS, Effort, Metadata, check_lock, unstored
from api.compat.openai.formats import locked
from api.compat.openai.responses_items import InputCall, InputCallOutput, InputItem, message_of
from api.compat.openai.sampling import TEMPERATURE
from api.compat.openai.texts import form_of
from api.compat.openai.tools import WORD_OR_FUNCTION, ChoiceWord, Function, FunctionsOnly, NamedFunction, offered
from api.compat.openai.turns import image_names
from api.compat.openai.wording import Calling
from api.compat.shapes import shaped, untaken
from catalog.options.words import Fraction, Tree
from catalog.terms import Verb
from tasks.errors import InvalidRequest
from tasks.items import MAX_MESSAGES, Strict, fault

_STATELESS = "nothing is remembered from one response to the next; send the whole conversation as 'input'"
_LOGPROBS = "message.output_text.logprobs"
_BACKGROUND = "send the work as a job by POST /v1/jobs, which is kept whether you wait or not"


class ResponseTool(Function):
    """A function that the model may call."""

    type: Literal["function"]


class NamedTool(NamedFunction):
    """The one function that is to be called."""

    type: Literal["function"]


class TextSettings(Strict):
    """What form the answer is to have."""

    format: Annotated[Tree | None, Field(description="`text`, `json_object` or `json_schema`, kept by a grammar")] = (
        None
    )
    verbosity: Annotated[Literal["medium"] | None, Field(description="No other than the default")] = None


class Reasoning(Strict):
    """Whether a model that can thinks aloud."""

    effort: Annotated[Effort | None, Field(description="`none` and `minimal`: not; any other: it does")] = None
    summary: Annotated[str | None, Field(description="Taken: thoughts are told as they are")] = None
    generate_summary: Annotated[str | None, Field(description="Taken: thoughts are told as they are")] = None


class ResponseStreamOptions(Strict):
    """What a stream tells besides."""

    include_obfuscation: Annotated[bool | None, Field(description="Taken and not needed: nothing is padded")] = None


def _no_background(value: object) -> object:
    if value is True:
        raise fault(f"is not taken: {_BACKGROUND}")
    return value


class ResponsesRequest(Strict):
    """A conversation to go on with. Fields that OpenAI does not have are extras of this service."""

    model: Annotated[str, Field(min_length=1)]
    input: Annotated[
        Annotated[str, Tag("(text)")]
        | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES), Tag("(list)")],
        Discriminator(form_of, custom_error_type="form", custom_error_message="must be a text or a list of items"),
    ]
    instructions: Annotated[str | None, Field(description="Goes first, as a message of the system's")] = None
    max_output_tokens: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    temperature: Annotated[Fraction | None, Field(ge=0, le=2, description=f"{TEMPERATURE:g} if left out")] = None
    top_p: Annotated[Fraction | None, Field(gt=0, le=1)] = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=20, description="With `message.output_text.logprobs`")] = None
    include: Annotated[
        list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None,
        Field(description="Log probabilities; thoughts are never encrypted"),
    ] = None
    text: TextSettings | None = None
    reasoning: Reasoning | None = None
    tools: Annotated[list[Annotated[ResponseTool, FunctionsOnly]] | None, Field(max_length=MAX_TOOLS)] = None
    tool_choice: Annotated[ChoiceWord | Annotated[NamedTool, Tag("(function)")], WORD_OR_FUNCTION] | None = None
    parallel_tool_calls: Annotated[
        bool | None, Field(description="Whether a call that is `required` may be several")
    ] = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63, description="An extra: makes a sample repeatable")] = None
    store: Annotated[
        bool | None,
        Field(description="False: nothing of it is kept once it is answered. Else the job is, and no response"),
    ] = None
    truncation: Annotated[Literal["disabled"] | None, Field(description="What is too long is refused")] = None
    metadata: Annotated[Metadata | None, Field(description="Given back, and kept nowhere")] = None
    user: Annotated[str | None, Field(description="Taken, and kept nowhere")] = None
    service_tier: Annotated[str | None, Field(description="Taken, and ignored")] = None
    prompt_cache_key: Annotated[str | None, Field(description="Taken, and ignored")] = None
    prompt_cache_retention: Annotated[str | None, Field(description="Taken, and ignored")] = None
    safety_identifier: Annotated[str | None, Field(description="Taken, and kept nowhere")] = None
    background: Annotated[bool | None, BeforeValidator(_no_background), Field(description="Not `true`")] = None
    previous_response_id: Annotated[None, untaken(_STATELESS), Field(description="Refused")] = None
    conversation: Annotated[None, untaken(_STATELESS), Field(description="Refused")] = None
    prompt: Annotated[None, untaken("no prompts are kept here; send 'input'"), Field(description="Refused")] = None
    context_management: Annotated[None, untaken(_STATELESS), Field(description="Refused")] = None
    max_tool_calls: Annotated[None, untaken("no tool is called here: you call them"), Field(description="Refused")] = (
        None
    )
    moderation: Annotated[None, untaken("nothing is moderated"), Field(description="Refused")] = None


@dataclass(frozen=True, slots=True)
class Responding:
    """A request that is well formed: its job, how its text is read, and what its response repeats."""

    asked: Asked
    request: ResponsesRequest
    calling: Calling | None


def responding(body: Mapping[str, Any]) -> Responding:
    """The response that a body asks for. Raises InvalidRequest, which names the field."""
    request = shaped(ResponsesRequest, body)
    form = locked(None if request.text is None else request.text.format, "text.format")
    parallel = request.parallel_tool_calls is not False
    tools = offered(request.tools or (), request.tool_choice, parallel=parallel, inside="")
    check_lock(form.options, tools.calling, "text.format")
    logprobs = _LOGPROBS in (request.include or ())
    if request.top_logprobs and not logprobs:
        raise InvalidRequest(f"'top_logprobs' needs {_LOGPROBS!r} in 'include'.", param="top_logprobs")
    effort = None if request.reasoning is None else request.reasoning.effort
    given = {
        "max_tokens": request.max_output_tokens,
        "top_p": request.top_p,
        "seed": request.seed,
        "logprobs": True if logprobs else None,
        "top_logprobs": request.top_logprobs,
        "thinking": None if effort is None else effort not in THOUGHTLESS,
    }
    options = {
        "temperature": TEMPERATURE if request.temperature is None else request.temperature,
        **{name: value for name, value in given.items() if value is not None},
        **form.options,
        **tools.options,
    }
    messages, places = _messages(request)
    raw = {
        "verb": Verb.GENERATE.value,
        "model": request.model,
        "items": [{"messages": messages}],
        "options": options,
        **unstored(request.store),
    }
    names = {
        "items": "input",
        "items[0]": "input",
        "items[0].messages": "input",
        "messages": "input",
        **places,
        "verb": "model",
        "options": "",
        "options.max_tokens": "max_output_tokens",
        "options.thinking": "reasoning.effort",
        "options.logprobs": "include",
        **form.names,
        **tools.names,
    }
    return Responding(Asked(raw, names), request, tools.calling)


def reread(body: Mapping[str, Any]) -> Responding:
    """The same of a body that was found well formed; its input, which may be large, is not read again."""
    return responding({**body, "input": ""})


def _messages(request: ResponsesRequest) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The conversation, and where in the body its messages and images come from."""
    found: list[dict[str, Any]] = []
    places: dict[str, str] = {}
    if request.instructions is not None:
        found.append({"role": "system", "content": request.instructions})
        places |= dict.fromkeys(("messages[0].content", "items[0].messages[0].content"), "instructions")
    if isinstance(request.input, str):
        found.append({"role": "user", "content": request.input})
        return found, places
    for index, item in enumerate(request.input):
        where = f"input[{index}]"
        message = message_of(item, where)
        if message is None:
            continue
        if isinstance(item, InputCall) and found and found[-1]["role"] == "assistant":
            # Templates want one turn of the assistant's: its words and all its calls.
            found[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
            continue
        ours, inside = f"messages[{len(found)}]", "output" if isinstance(item, InputCallOutput) else "content"
        for native in (ours, f"items[0].{ours}"):
            places |= {native: where, f"{native}.content": f"{where}.{inside}"}
        places |= image_names(message["content"], f"{ours}.content", f"{where}.{inside}[{{}}].image_url")
        found.append(message)
    return found, places
