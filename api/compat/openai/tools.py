"""Functions that a caller describes, and which of them a model may or must call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from api.compat.openai.wording import Calling
from catalog.options.words import Tree
from tasks.errors import InvalidRequest
from tasks.items import MAX_TOOL_CALLS, Strict, fault

NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

_SCHEMA = "options.grammar.json_schema"

FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class Function(Strict):
    """A function that a model may call."""

    name: FunctionName
    description: Annotated[str | None, Field(max_length=100_000)] = None
    parameters: Annotated[Tree | None, Field(description="A JSON schema of its arguments")] = None
    strict: Annotated[bool | None, Field(description="Kept to where `tool_choice` asks for a call")] = None


def _function(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else "function"
    if isinstance(kind, str) and kind != "function":
        raise fault("must be 'function': nothing else is called, and nothing is run here", "type")
    return value


FunctionsOnly = BeforeValidator(_function)
"""Put it on a tool: of any other kind it is refused by its type, whatever else it holds."""


class NamedFunction(Strict):
    """A function by its name."""

    name: FunctionName


def _choice_form(value: object) -> str | None:
    return "(word)" if isinstance(value, str) else "(function)" if isinstance(value, dict | Strict) else None


ChoiceWord = Annotated[Literal["none", "auto", "required"], Tag("(word)")]
"""Whether a call may or must be made."""

WORD_OR_FUNCTION = Discriminator(
    _choice_form,
    custom_error_type="form",
    custom_error_message="must be 'none', 'auto', 'required' or a function's name as an object",
)
"""Put it on the union of a ChoiceWord and of the form that names a function, which has the tag '(function)'."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What becomes of the functions of a request.

    `options` are those of `generate`; `names` say where a fault in them is in the caller's body; `calling` tells the
    reader of the text what to look for, None where nothing may be called.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    calling: Calling | None = None


def offered(
    functions: Sequence[Function],
    choice: str | NamedFunction | None,
    *,
    parallel: bool,
    inside: str,
) -> Offered:
    """The functions as the chat template reads them. A call that is asked for is locked by a grammar.

    `choice` is `auto`, `none`, `required` or one function; `inside` is what is between `tools[i]` and a function's own
    fields in the caller's body. Raises InvalidRequest.
    """
    if not functions:
        if choice in (None, "auto", "none"):
            return Offered()
        raise InvalidRequest("'tool_choice' asks for a call, and there are no 'tools'.", param="tool_choice")
    schemas = {one.name: NO_ARGUMENTS if one.parameters is None else one.parameters for one in functions}
    if len(schemas) < len(functions):
        raise InvalidRequest("'tools' has two functions of one name.", param="tools")
    if isinstance(choice, NamedFunction) and choice.name not in schemas:
        message = f"'tool_choice' names the function {choice.name!r}, which is none of 'tools'."
        raise InvalidRequest(message, param="tool_choice")
    if choice == "none":
        return Offered()
    places = [f"tools[{index}]{inside}.parameters" for index in range(len(functions))]
    options: dict[str, Any] = {"tools": [_described(one) for one in functions]}
    if isinstance(choice, NamedFunction):
        options["grammar"] = {"json_schema": schemas[choice.name]}
        return Offered(options, {_SCHEMA: places[list(schemas).index(choice.name)]}, Calling(schemas, only=choice.name))
    if choice == "required":
        options["grammar"] = {"json_schema": _calls(schemas, MAX_TOOL_CALLS if parallel else 1)}
        names = {f"{_SCHEMA}.$defs.{_key(index)}": place for index, place in enumerate(places)}
        return Offered(options, names, Calling(schemas, locked=True))
    return Offered(options, calling=Calling(schemas))


def _described(function: Function) -> dict[str, Any]:
    return {"type": "function", "function": function.model_dump(exclude={"strict", "type"}, exclude_none=True)}


def _key(index: int) -> str:
    return f"function{index}"


def _calls(schemas: Mapping[str, Mapping[str, Any]], most: int) -> dict[str, Any]:
    """The schema of a list of calls: those of the arguments are definitions in it, their references led there."""
    definitions, branches = {}, []
    for index, (name, schema) in enumerate(schemas.items()):
        key = _key(index)
        definitions[key] = _moved({word: value for word, value in schema.items() if word != "$id"}, f"#/$defs/{key}")
        properties = {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{key}"}}
        branches.append(
            {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
        )
    items = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {"type": "array", "minItems": 1, "maxItems": most, "items": items, "$defs": definitions}


def _moved(value: Any, to: str) -> Any:
    """A schema whose references into itself lead to the same places below `to`. Depth and size were checked."""
    if isinstance(value, dict):
        return {
            name: to + inner[1:]
            if name == "$ref" and isinstance(inner, str) and inner[:1] == "#"
            else _moved(inner, to)
            for name, inner in value.items()
        }
    return [_moved(inner, to) for inner in value] if isinstance(value, list) else value
