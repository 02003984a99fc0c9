"""The OpenAPI document, made from what handlers are described by: the same models that requests are checked with."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from aiohttp import web
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from infinity_pool.api.access.auth import is_public
from infinity_pool.api.described import Description, Operation, operations_of

Json = dict[str, Any]

_REFUSED = (400, 408, 413, 415, 422)  # of a body
_ASKED = (404, 429, 503, 504)  # of a model
_ALWAYS = (500,)
_THIS_SERVER = "This server"
"""The group of what needs no key; all else is in that of its dialect."""

_TEMPLATE = "#/components/schemas/{model}"
_WAIT = {"Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}}


def document(app: web.Application, version: str) -> Json:
    """Describe all paths of an application that have described handlers, as OpenAPI 3.1."""
    operations = list(operations_of(app))
    schemas, components = _schemas(operations)
    paths: dict[str, Json] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method] = _operation(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Infinity Pool", "version": version, "description": _about()},
        "tags": [{"name": name} for name in _groups(operations)],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _about() -> str:
    return "Embeddings, rerankers, classifiers and multimodal models, over the APIs that clients already speak."


def _schemas(operations: list[Operation]) -> tuple[Mapping[Any, Json], Json]:
    """Give the schema of each type that is used, by the type, and the components that they refer to."""
    keyed: dict[Any, tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = {}
    for one in operations:
        for kind, mode in _types(one):
            keyed.setdefault((kind, mode), ((kind, mode), mode, _adapter(kind)))
    made, rest = TypeAdapter.json_schemas(list(keyed.values()), ref_template=_TEMPLATE)
    return {key: schema for (key, _), schema in made.items()}, rest.get("$defs", {})


def _types(one: Operation) -> Iterator[tuple[Any, JsonSchemaMode]]:
    description = one.description
    for kind in (description.takes, description.query):
        if kind is not None:
            yield kind, "validation"
    for given in (description.gives, *(kind for _, kind in description.also), description.error):
        if not isinstance(given, str):
            yield given, "serialization"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _operation(one: Operation, schemas: Mapping[Any, Json]) -> Json:
    words = (one.handler.__doc__ or "").strip()
    summary, _, more = words.partition("\n\n")
    operation: Json = {
        "operationId": f"{one.method}{one.path}".replace("/", "_").replace("{", "").replace("}", ""),
        "summary": " ".join(summary.split()).replace("`", ""),
        "tags": [_group(one)],
        "responses": _responses(one, schemas),
    }
    if more:
        operation["description"] = " ".join(more.split())
    if parameters := _parameters(one):
        operation["parameters"] = parameters
    if one.description.takes is not None:
        operation["requestBody"] = _body(one.description, schemas)
    if not is_public(one.handler):
        operation["security"] = [{"key": []}, {}]
    return operation


def _group(one: Operation) -> str:
    return _THIS_SERVER if is_public(one.handler) else one.description.dialect.TITLE


def _groups(operations: list[Operation]) -> list[str]:
    """Give the groups, those of most paths first, and what is no API last."""
    return sorted(counts := Counter(map(_group, operations)), key=lambda name: (name == _THIS_SERVER, -counts[name]))


def _body(description: Description, schemas: Mapping[Any, Json]) -> Json:
    schema = schemas[description.takes, "validation"]
    if description.form:
        return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    content = {"application/json": {"schema": schema}}
    if description.uploads:
        content["multipart/form-data"] = {"schema": {"type": "object"}}
    return {"required": True, "content": content}


def _parameters(one: Operation) -> list[Json]:
    in_path = [
        {"name": part.strip("{}"), "in": "path", "required": True, "schema": {"type": "string"}}
        for part in one.path.split("/")
        if part.startswith("{")
    ]
    return in_path + ([] if one.description.query is None else list(_query(one.description.query)))


def _query(kind: type[BaseModel]) -> Iterator[Json]:
    schema = kind.model_json_schema()
    for name, field in schema["properties"].items():
        about = {"description": field.pop("description")} if "description" in field else {}
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field} | about


def _responses(one: Operation, schemas: Mapping[Any, Json]) -> Json:
    description = one.description
    responses = {"200": _answer("What was asked for.", description.gives, schemas)}
    for status, kind in description.also:
        responses[str(status)] = _answer(HTTPStatus(status).phrase, kind, schemas)
    for status in _statuses(one):
        error = _answer(HTTPStatus(status).phrase, description.error, schemas)
        responses.setdefault(str(status), error | ({"headers": _WAIT} if status in (429, 503) else {}))
    return dict(sorted(responses.items()))


def _answer(what: str, kind: Any, schemas: Mapping[Any, Json]) -> Json:
    if isinstance(kind, str):
        return {"description": what, "content": {kind: {"schema": {"type": "string"}}}}
    return {"description": what, "content": {"application/json": {"schema": schemas[kind, "serialization"]}}}


def _statuses(one: Operation) -> list[int]:
    keyed = () if is_public(one.handler) else (401, 403, 429)
    asks = one.description.takes is not None
    return sorted({*_ALWAYS, *keyed, *(_REFUSED if asks else ()), *(_ASKED if asks or "{" in one.path else ())})
