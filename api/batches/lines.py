"""The lines of a batch's input: what each must be, and what is wrong with those that are not."""

import hashlib
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from infinity_pool.api.bodies.counting import check_values
from infinity_pool.api.bodies.reading import ModelBody, parse, validated
from infinity_pool.broker.errors import InvalidInput

MOST_ERRORS = 100


class Request(BaseModel):
    """One line: a request as its endpoint takes it, and the name by which its answer is found."""

    model_config = ConfigDict(extra="ignore")

    custom_id: str = Field(min_length=1, max_length=512)
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


async def read_line(data: bytes) -> Request:
    """Read a line; raises InvalidInput, naming what is wrong."""
    await check_values(data)
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidInput("is no JSON object")
    return validated(Request, fields)


def body_of(fields: dict[str, Any]) -> bytes:
    """Give the body of a request; raises InvalidInput for one that is read, but cannot be written."""
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError as error:
        raise InvalidInput("body: is nested too deeply", param="body") from error


class Checker:
    """Looks at all lines before the first is run; `errors` is what is wrong, up to MOST_ERRORS of it."""

    def __init__(self, endpoint: str, kind: type[ModelBody], most: int) -> None:
        self._endpoint = endpoint
        self._kind = kind
        self._most = most
        self._ids: set[bytes] = set()
        self._number = 0
        self.errors: list[dict[str, Any]] = []
        self.requests = 0
        self.model: str | None = None

    @property
    def over(self) -> bool:
        """Whether there is no use in looking further."""
        return len(self.errors) >= MOST_ERRORS or self.requests > self._most

    async def check(self, data: bytes) -> None:
        """Look at the next line; one with nothing in it is passed over."""
        self._number += 1
        if not data.strip():
            return
        self.requests += 1
        if self.requests > self._most:
            self.refuse("too_many_requests", f"a batch may have {self._most} requests (--max-batch-requests)")
            return
        try:
            self._check(request := await read_line(data))
            self._check_model((await parse(body_of(request.body), self._kind)).model)
        except InvalidInput as error:
            self.refuse("invalid_request", str(error), error.param)

    def refuse_next(self, error: InvalidInput) -> None:
        """Put down that the next line cannot be read at all."""
        self._number += 1
        self.requests += 1
        self.refuse("invalid_request", error.message)

    def end(self) -> None:
        """Say what is wrong with all of it."""
        if not self._number or not self.requests:
            self.refuse("empty_file", "the file has no requests")

    def refuse(self, code: str, message: str, param: str | None = None) -> None:
        """Put down what is wrong with the line looked at last."""
        line = self._number or None
        self.errors.append({"code": code, "line": line, "message": message, "param": param})

    def _check(self, request: Request) -> None:
        if request.url != self._endpoint:
            raise InvalidInput(f"url: the batch is for {self._endpoint}, not {request.url[:100]}", param="url")
        seen = hashlib.blake2b(request.custom_id.encode(), digest_size=16).digest()
        if seen in self._ids:
            raise InvalidInput(f"custom_id: {request.custom_id[:100]!r} is given twice", param="custom_id")
        self._ids.add(seen)

    def _check_model(self, model: str) -> None:
        self.model = self.model or model
        if model != self.model:
            message = f"body.model: all requests of a batch are for one model: {self.model!r}, not {model!r}"
            raise InvalidInput(message, param="body.model")
