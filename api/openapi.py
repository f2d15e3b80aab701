"""The OpenAPI document, with what the framework would say wrongly put right."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application, made once.

    Errors are JSON on every route, also where a success is plain text or a stream, and a reply without a body has none.
    The framework's own 422, which no route answers with, is left out.
    """
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operation in (operation for path in made["paths"].values() for operation in path.values()):
            for status, response in list(operation["responses"].items()):
                if status == "422" and _UNUSED[0] in str(response):
                    del operation["responses"][status]
                elif status == "204":
                    response.pop("content", None)
                elif int(status) >= 400:
                    (schema,) = response["content"].values()
                    response["content"] = {"application/json": schema}
        for name in _UNUSED:
            made["components"]["schemas"].pop(name, None)
        app.openapi_schema = made
    return app.openapi_schema


_UNUSED = ("HTTPValidationError", "ValidationError")
