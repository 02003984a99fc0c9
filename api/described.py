"""What a handler takes and gives, said once beside it; the OpenAPI document and the shape of errors come from it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, Protocol, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler
from pydantic import BaseModel

from infinity_pool.api.dialects import openai

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Dialect(Protocol):
    """What a file in dialects/ has: how an API tells of errors."""

    @property
    def ErrorAnswer(self) -> type[BaseModel]:  # noqa: N802 - a class in a module
        """The body of an error."""
        ...

    @property
    def TITLE(self) -> str:  # noqa: N802 - a constant of a module
        """Whose API it is."""
        ...

    @property
    def NAMES(self) -> Mapping[str, tuple[str, ...]]:  # noqa: N802 - a constant of a module
        """How requests call our options, where that is otherwise."""
        ...

    def error_body(self, status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
        """Give an error as the dialect's clients expect it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Description:
    """
    A handler's part of the OpenAPI document.

    `takes` is its body, JSON or, where it is a `form`, that alone, and `query` its query's fields, `gives` the type of
    its JSON, or the media type of what it answers else. `also` are statuses whose answers are not errors of the
    dialect, by the type of their JSON; `others` are dialects that errors may be told in by `speak`.
    """

    gives: Any
    takes: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    also: tuple[tuple[int, Any], ...] = ()
    uploads: bool = False
    form: bool = False
    dialect: Dialect = openai
    others: tuple[Dialect, ...] = ()

    @property
    def error(self) -> Any:
        """The type of its errors."""
        return reduce(or_, (one.ErrorAnswer for one in (self.dialect, *self.others)))


_PLAIN = Description(gives=None)
_DESCRIBED: dict[Handler, Description] = {}
_CHOSEN = web.RequestKey("dialect", object)


def described(**facts: Any) -> Callable[[AnyHandler], AnyHandler]:
    """Describe a handler by the fields of a Description."""
    description = Description(**facts)

    def describe(handler: AnyHandler) -> AnyHandler:
        _DESCRIBED[handler] = description
        return handler

    return describe


class Operation(NamedTuple):
    """A described handler at a path."""

    path: str
    method: str
    handler: Handler
    description: Description


def operations_of(app: web.Application) -> Iterator[Operation]:
    """Give the described handlers of an application; HEAD is what GET is."""
    for route in app.router.routes():
        description = _DESCRIBED.get(route.handler)
        if description is not None and route.resource is not None and route.method != "HEAD":
            yield Operation(route.resource.canonical, route.method.lower(), route.handler, description)


def speak(request: web.Request, dialect: Dialect) -> None:
    """Answer this request's errors in a dialect, where its body shows that and not its path."""
    request[_CHOSEN] = dialect


def dialect_of(request: web.Request) -> Dialect:
    """Give the dialect that a request's errors are told in; OpenAI's where there is nothing at its path."""
    chosen: Any = request.get(_CHOSEN)
    return chosen or (_DESCRIBED.get(request.match_info.handler) or _described_at(request)).dialect


def _described_at(request: web.Request) -> Description:
    """Give what is described at a request's path for another method, what takes a body first."""
    found = [one.description for one in operations_of(request.app) if one.path == request.path]
    return max(found, key=lambda one: one.takes is not None, default=_PLAIN)
