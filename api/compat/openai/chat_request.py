"""The body of POST /v1/chat/completions, and the generate job that it asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator

from api.compat.endpoints import Asked
from api.compat.openai.formats import locked
from api.compat.openai.sampling import Sampling, check_copies, options_of
from api.compat.openai.tools import WORD_OR_FUNCTION, ChoiceWord, Function, FunctionsOnly, NamedFunction, offered
from api.compat.openai.turns import Messages, image_names, native
from api.compat.openai.wording import Calling
from api.compat.shapes import shaped, untaken
from catalog.options.words import Tree, at_most
from catalog.terms import Verb
from tasks.errors import InvalidRequest
from tasks.items import Strict, fault

MAX_TOOLS = 128
MAX_METADATA = 16

THOUGHTLESS = ("none", "minimal")
"""The efforts that ask a model not to think aloud; any other asks it to."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Metadata = Annotated[dict[str, str], Field(max_length=MAX_METADATA), at_most(MAX_METADATA)]


class ChatTool(Strict):
    """A function that the model may call."""

    type: Literal["function"]
    function: Function


class ChatToolChoice(Strict):
    """The one function that is to be called."""

    type: Literal["function"]
    function: NamedFunction


class TemplateSettings(Strict):
    """What a chat template is told."""

    enable_thinking: Annotated[bool | None, Field(description="Whether a model that can thinks aloud")] = None


class ChatRequest(Sampling):
    """A conversation to go on with. Fields that OpenAI does not have are extras of this service."""

    model: Annotated[str, Field(min_length=1)]
    messages: Messages
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=1_000_000, description="As `max_tokens`")] = None
    logprobs: Annotated[bool | None, Field(description="Tell how likely each token was")] = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=20, description="And of so many others; needs `logprobs`")] = (
        None
    )
    response_format: Annotated[
        Tree | None, Field(description="`text`, `json_object` or `json_schema`, kept by a grammar")
    ] = None
    tools: Annotated[list[Annotated[ChatTool, FunctionsOnly]] | None, Field(max_length=MAX_TOOLS)] = None
    tool_choice: Annotated[ChoiceWord | Annotated[ChatToolChoice, Tag("(function)")], WORD_OR_FUNCTION] | None = None
    parallel_tool_calls: Annotated[
        bool | None, Field(description="Whether a call that is `required` may be several")
    ] = None
    reasoning_effort: Annotated[
        Effort | None, Field(description="`none` and `minimal`: do not think aloud; any other: do")
    ] = None
    chat_template_kwargs: Annotated[TemplateSettings | None, Field(description="An extra, as vLLM has it")] = None
    metadata: Annotated[Metadata | None, Field(description="Taken, and kept nowhere")] = None
    store: Annotated[bool | None, Field(description="False: nothing of it is kept once it is answered")] = None
    service_tier: Annotated[str | None, Field(description="Taken, and ignored")] = None
    prompt_cache_key: Annotated[str | None, Field(description="Taken, and ignored")] = None
    prompt_cache_retention: Annotated[str | None, Field(description="Taken, and ignored")] = None
    safety_identifier: Annotated[str | None, Field(description="Taken, and kept nowhere")] = None
    modalities: Annotated[list[Literal["text"]] | None, Field(description="Text alone")] = None
    verbosity: Annotated[
        Literal["medium"] | None, Field(description="Any other than the default is refused: say it in words")
    ] = None
    functions: Annotated[None, untaken("describe functions with 'tools'"), Field(description="Refused")] = None
    function_call: Annotated[None, untaken("say it with 'tool_choice'"), Field(description="Refused")] = None
    audio: Annotated[None, untaken("no model here speaks"), Field(description="Refused")] = None
    prediction: Annotated[None, untaken("nothing is predicted ahead"), Field(description="Refused")] = None
    moderation: Annotated[None, untaken("nothing is moderated"), Field(description="Refused")] = None
    web_search_options: Annotated[None, untaken("nothing is fetched"), Field(description="Refused")] = None

    @model_validator(mode="after")
    def _said_once(self) -> ChatRequest:
        if self.max_tokens is not None and self.max_completion_tokens not in (None, self.max_tokens):
            raise fault("is also said by 'max_completion_tokens', and differs; leave one out", "max_tokens")
        if None not in (self.thinks_by_template, self.thinks_by_effort) and (
            self.thinks_by_template != self.thinks_by_effort
        ):
            raise fault("says another thing than 'chat_template_kwargs'; leave one out", "reasoning_effort")
        return self

    @property
    def thinks_by_template(self) -> bool | None:
        """Whether the model is to think aloud, as the template is told."""
        return None if self.chat_template_kwargs is None else self.chat_template_kwargs.enable_thinking

    @property
    def thinks_by_effort(self) -> bool | None:
        """The same by the effort."""
        return None if self.reasoning_effort is None else self.reasoning_effort not in THOUGHTLESS


@dataclass(frozen=True, slots=True)
class Chat:
    """A request that is well formed: its job, how its texts are read, and what its stream tells."""

    asked: Asked
    model: str
    choices: int
    calling: Calling | None
    logprobs: bool
    tells_usage: bool


def chat_of(body: Mapping[str, Any]) -> Chat:
    """The chat of a body. Raises InvalidRequest, which names the field."""
    request = shaped(ChatRequest, body)
    form = locked(request.response_format, "response_format", "json_schema")
    choice = request.tool_choice.function if isinstance(request.tool_choice, ChatToolChoice) else request.tool_choice
    tools = offered(
        [tool.function for tool in request.tools or ()],
        choice,
        parallel=request.parallel_tool_calls is not False,
        inside=".function",
    )
    check_lock(form.options, tools.calling, "response_format")
    options = {**options_of(request), **form.options, **tools.options}
    if request.max_completion_tokens is not None:
        options["max_tokens"] = request.max_completion_tokens
    if request.logprobs is not None:
        options["logprobs"] = request.logprobs
    if request.top_logprobs is not None:
        options["top_logprobs"] = request.top_logprobs
    by_template, by_effort = request.thinks_by_template, request.thinks_by_effort
    if (thinking := by_effort if by_template is None else by_template) is not None:
        options["thinking"] = thinking
    messages, choices = native(request.messages), request.choices
    check_copies(messages, choices)
    names = {**_names_of(choices), **form.names, **tools.names}
    names["options.thinking"] = "reasoning_effort" if by_template is None else "chat_template_kwargs.enable_thinking"
    for index, message in enumerate(messages):
        where = f"messages[{index}].content"
        names |= image_names(message["content"], where, where + "[{}].image_url.url")
    if request.max_completion_tokens is not None:
        names["options.max_tokens"] = "max_completion_tokens"
    raw = {
        "verb": Verb.GENERATE.value,
        "model": request.model,
        "items": [{"messages": messages} for _ in range(choices)],
        "options": options,
        **unstored(request.store),
    }
    return Chat(Asked(raw, names), request.model, choices, tools.calling, bool(request.logprobs), request.tells_usage)


def unstored(store: bool | None) -> dict[str, bool]:
    """The field of a job for OpenAI's `store`. Left out, each of its APIs means another thing by it; jobs are kept."""
    return {"store": False} if store is False else {}


def reread(body: Mapping[str, Any]) -> Chat:
    """The chat of a body that was found well formed; its messages, which may be large, are not read again."""
    return chat_of({**body, "messages": [{"role": "user", "content": ""}]})


def check_lock(form: Mapping[str, Any], calling: Calling | None, where: str) -> None:
    """Raise InvalidRequest where the form of an answer leaves no room for a call."""
    if form and calling is not None:
        message = (
            f"{where!r} locks the answer, so that no tool could be called; leave 'tools' out, or ask in two turns."
        )
        raise InvalidRequest(message, param=where)


def _names_of(choices: int) -> dict[str, str]:
    """How the fields of the job are called in the body, of which each choice is an item."""
    items = {f"items[{index}]{inside}": "messages" for index in range(choices) for inside in ("", ".messages")}
    return {"items": "messages" if choices == 1 else "n", **items, "verb": "model", "options": ""}
