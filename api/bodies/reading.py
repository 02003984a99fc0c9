"""Reads a request: its body, checked field by field, and its headers."""

import asyncio
import math
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from aiohttp import web
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from infinity_pool.api.bodies.counting import LARGE, check_values
from infinity_pool.api.bodies.forms import FORM, check_origin, fields_of
from infinity_pool.api.bodies.token_ids import take_out
from infinity_pool.broker.errors import DeadlineExceeded, InvalidInput
from infinity_pool.broker.messages import LANES, Lane

LANE_HEADER = "X-Infinity-Lane"

_JSON = "application/json"
_ENCODINGS = ("identity", "gzip", "deflate", "br", "zstd")
"""Of a body as it was sent; it comes here without, or, of one that nothing here undoes, not at all."""

Truncate = bool | None
"""False refuses items that are over the model's limit, which are cut without it."""

Dimensions = Annotated[int | None, Field(ge=0, le=2**20), AfterValidator(lambda width: width or None)]
"""How many of a vector's numbers are kept; 0, which Infinity's clients send, is all of them, as none is."""

T = TypeVar("T")
AnyBody = TypeVar("AnyBody", bound="Body")
AnyModel = TypeVar("AnyModel", bound=BaseModel)
AnyModelBody = TypeVar("AnyModelBody", bound="ModelBody")

GIVEN = web.RequestKey("given", set[str])
"""The fields that a request's body has."""

UNNAMED = "default/not-specified"
"""What Infinity's clients call a model that they do not name."""


class Body(BaseModel):
    """A request's JSON: numbers are not strings, and unknown fields are passed over."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    files: ClassVar[str] = ""
    """The field whose items may be files; with one, a form is taken in place of JSON."""


class ModelBody(Body):
    """A request to a model: the only one that is served, where it names none."""

    model: str = Field(UNNAMED, min_length=1, max_length=256, examples=[UNNAMED])


async def read(request: web.Request, kind: type[AnyBody], timeout: float, patience: float) -> AnyBody:
    """
    Read and check a request's body, waiting up to `timeout` seconds for all of it, and `patience` for more of it.

    Raises InvalidInput, naming the field and item, web.HTTPRequestEntityTooLarge, web.HTTPRequestTimeout where nothing
    comes any more, and web.HTTPForbidden for forms.
    """
    is_form = bool(kind.files) and request.content_type == FORM
    if is_form:
        check_origin(request)
    else:
        _check_content_type(request)
    check_encoding(request)
    _check_length(request)
    data = await (request.read() if request.content.is_eof() else _wait(request, timeout, patience))
    body = await (_of_form(request, kind, data) if is_form else parse(data, kind))
    request[GIVEN] = body.model_fields_set
    return body


async def _of_form(request: web.Request, kind: type[AnyBody], data: bytes) -> AnyBody:
    return validated(kind, await fields_of(data, request.headers["Content-Type"], kind.files))


async def parse(data: bytes, kind: type[AnyBody]) -> AnyBody:
    """Check a body's JSON; raises InvalidInput, naming the field and item."""
    rest, ids = await take_out(data) if len(data) > LARGE else (data, None)
    await check_values(rest)
    try:
        return kind.model_validate_json(rest, context={"ids": ids})
    except ValidationError as error:
        raise _explained(error) from None


def validated(kind: type[AnyModel], fields: Mapping[str, Any]) -> AnyModel:
    """Check fields that are text, as those of forms and queries are; raises InvalidInput, naming the field."""
    try:
        return kind.model_validate(fields, strict=False)
    except ValidationError as error:
        raise _explained(error) from None


def lane_of(request: web.Request, usual: Lane) -> Lane:
    """Give the lane that the caller asks for, else the usual one."""
    asked = request.headers.get(LANE_HEADER)
    if asked is None:
        return usual
    for name in LANES:
        if asked == name:
            return name
    raise InvalidInput(f"{LANE_HEADER} must be {' or '.join(LANES)}", param=LANE_HEADER)


async def _wait(request: web.Request, timeout: float, patience: float) -> bytes:
    try:
        async with asyncio.timeout(timeout):
            return await while_it_comes(request, request.read(), patience, "body")
    except TimeoutError:
        raise DeadlineExceeded(f"the body did not arrive within {timeout:g} s") from None


async def while_it_comes(
    request: web.Request, coming: Coroutine[Any, Any, T], patience: float, what: str, most: float = math.inf
) -> T:
    """
    Await what is read of a body, unless there is nothing new of it from one look to the next, `patience` seconds later.

    Raises web.HTTPRequestTimeout, naming `what` does not come, and web.HTTPRequestEntityTooLarge where over `most`
    bytes have.
    """
    reading = asyncio.create_task(coming)
    reading.add_done_callback(lambda task: task.cancelled() or task.exception())  # whoever has gone asks for neither
    try:
        seen = -1
        while not reading.done() and most >= request.content.total_bytes > seen:
            seen = request.content.total_bytes
            await asyncio.wait({reading}, timeout=patience)
        if reading.done():
            return reading.result()
        if request.content.total_bytes > most:
            raise web.HTTPRequestEntityTooLarge(int(most), request.content.total_bytes)
        raise web.HTTPRequestTimeout(text=f"nothing more of the {what} came within {patience:g} s")
    finally:
        reading.cancel()


def _check_content_type(request: web.Request) -> None:
    """Refuse what a browser would send across sites unasked, such as a form; nothing at all is taken as JSON."""
    sent = request.headers.get("Content-Type", _JSON)
    if sent == _JSON:
        return
    kind = request.content_type
    if not kind.endswith(("/json", "+json")):
        raise web.HTTPUnsupportedMediaType(text=f"send the body as {_JSON}")


def check_encoding(request: web.Request) -> None:
    """Refuse a body that was compressed in a way that nobody undid."""
    if request.headers.get("Content-Encoding", "identity").lower() not in _ENCODINGS:
        raise web.HTTPUnsupportedMediaType(text="the body's Content-Encoding is not taken; gzip and deflate are")


def _check_length(request: web.Request) -> None:
    """Refuse a body that says it is too long before it comes; one that does not say is cut off by aiohttp."""
    length = request.content_length
    if length is not None and length > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(max_size=request.client_max_size, actual_size=length)


def _explained(error: ValidationError) -> InvalidInput:
    """Say what is wrong first, without the value: it may be long, or nobody's business in a log."""
    first: Any = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    return InvalidInput(f"{param}: {first['msg']}" if param else first["msg"], param=param or None)
