"""The client that asks an API replica over HTTP, with the methods of the one that asks the queue."""

import asyncio
import io
import re
from binascii import a2b_base64
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import fields
from types import TracebackType
from typing import Any, Self, cast

import aiohttp
import numpy as np
import orjson

from infinity_pool.broker.errors import BY_CODE, DeadlineExceeded, InfinityError, InvalidInput, Unavailable
from infinity_pool.broker.messages import Array, Item, Lane, Result
from infinity_pool.broker.presence import ModelStatus, Waiting, WorkerInfo
from infinity_pool.broker.splitting import join

_ITEM = re.compile(r"(\w+)\[(\d{1,9})\]")  # a field, and which of its items, as an error's `param` has it
_SHORTEST = 0.001  # s, of a timeout that is sent
_PART_ITEMS = 256  # in one request; more are sent as several
_PARTS_AT_ONCE = 4
_PATHS = {"embed": "/embeddings"}
_OPTIONS = {"embed": {"dimensions"}}
_BY_STATUS: dict[int, type[InfinityError]] = {502: Unavailable, 503: Unavailable, 504: DeadlineExceeded}


class HttpClient:
    """
    Asks an API replica; an async context manager.

    `url` is the server's, with or without /v1; `timeout` is in seconds, of a request that is not sent as bulk.
    """

    def __init__(self, url: str, *, api_key: str = "", timeout: float = 60.0) -> None:
        self.timeout = timeout
        self._base = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._status: dict[str, ModelStatus] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def submit(
        self,
        model: str,
        task: str,
        items: Sequence[Item],
        *,
        options: dict[str, Any] | None = None,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> Result:
        """
        Run some items through a model and give their outputs, in order.

        Raises what the server answers as one of our errors, Unavailable if it cannot be reached, DeadlineExceeded
        after `timeout` seconds. Cancelling the call takes the job back.
        """
        unknown = set(options or {}) - _OPTIONS.get(task, set())
        if task not in _PATHS or unknown:
            raise InvalidInput(f"the server has no {task} with {', '.join(unknown) or 'these items'}", param="task")
        if not items:
            raise InvalidInput("there is nothing to run: the list is empty", param="input")
        parts = [list(items[first : first + _PART_ITEMS]) for first in range(0, len(items), _PART_ITEMS)]
        if len(parts) > 1:
            lane = lane or "bulk"  # by the size of the whole, not of the last part
        timeout = self.timeout if timeout is None and lane != "bulk" else timeout
        headers = _headers(lane, timeout)
        body = {**(options or {}), "model": model, "encoding_format": "base64"}
        asks = [
            self._embeddings({**body, "input": part}, headers, place * _PART_ITEMS) for place, part in enumerate(parts)
        ]
        try:
            async with asyncio.timeout(timeout):
                return join(await _together(asks))
        except TimeoutError:
            raise DeadlineExceeded(f"{model} gave no answer within {timeout:g} s") from None

    async def embed(
        self,
        model: str,
        texts: str | Sequence[str],
        *,
        dimensions: int | None = None,
        lane: Lane | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Embed texts: float32 [n, width], or [width] for a single one; `dimensions` cuts the width."""
        options = {} if dimensions is None else {"dimensions": dimensions}
        items = [texts] if isinstance(texts, str) else list(texts)
        result = await self.submit(model, "embed", items, options=options, lane=lane, timeout=timeout)
        vectors = cast(Array, result.outputs)
        return cast(Array, vectors[0]) if isinstance(texts, str) else vectors

    async def models(self) -> list[ModelStatus]:
        """Ask the server which models are served, and by whom."""
        _, found = await self._ask("GET", "/models")
        self._status = {model["id"]: _model_status(model) for model in found["data"]}
        return list(self._status.values())

    @property
    def status(self) -> Mapping[str, ModelStatus]:
        """The models as of the last call of `models`, by name."""
        return self._status

    async def _embeddings(self, body: dict[str, Any], headers: dict[str, str], first: int) -> Result:
        """Ask for one part of a request, whose first item is the request's `first`."""
        data = io.BytesIO(_encoded(body))
        try:
            answered, answer = await self._ask("POST", _PATHS["embed"], data=data, headers=headers)
        except InfinityError as error:
            if error.item is not None:
                error.item += first
            raise
        rows = [a2b_base64(entry["embedding"]) for entry in answer["data"]]
        return Result(
            answered.get("X-Request-Id", ""),
            np.frombuffer(b"".join(rows), "<f4").reshape(len(rows), -1),
            answer["usage"]["total_tokens"],
            int(answered.get("X-Infinity-Truncated", 0)),
        )

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[Mapping[str, str], Any]:
        """Give the headers and the JSON of an answer; raises what it says went wrong."""
        try:
            async with self._session.request(method, self._base + path, **options) as response:
                data = await response.read()
        except aiohttp.ClientError as error:
            raise Unavailable(f"the server cannot be reached: {error}", retry_after=1.0) from error
        if response.status != 200:
            raise _error(response.status, response.headers, data)
        try:
            return response.headers, orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InfinityError(f"{self._base + path} did not answer with JSON") from error


def _headers(lane: Lane | None, timeout: float | None) -> dict[str, str]:
    """Give the headers by which the server learns what a request's own body has no place for."""
    headers: dict[str, str] = {"X-Infinity-Lane": lane} if lane else {}
    if timeout is not None:
        headers["X-Request-Timeout"] = f"{max(timeout, _SHORTEST):.3f}"
    return headers


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:  # a lone surrogate, or an item that is no text
        raise InvalidInput(f"an item cannot be sent: {error}", param="input") from error


async def _together(asks: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Await all, a few at a time; the first failure cancels the others."""
    turns = asyncio.Semaphore(_PARTS_AT_ONCE)

    async def in_turn(ask: Coroutine[Any, Any, Result]) -> Result:
        async with turns:
            return await ask

    tasks = [asyncio.create_task(in_turn(ask)) for ask in asks]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _error(status: int, headers: Mapping[str, str], data: bytes) -> InfinityError:
    """Make the error that an answer tells of; one from something before the server is told by its status."""
    try:
        told = orjson.loads(data)["error"]
        code, message, param = str(told["code"]), str(told["message"]), told["param"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        code, message, param = "", f"HTTP status {status}", None
    kind = BY_CODE.get(code) or _BY_STATUS.get(status, InvalidInput if status < 500 else InfinityError)
    item = None
    if found := _ITEM.fullmatch(param or ""):
        message = message.removeprefix(f"{param}: ")
        param, item = found[1], int(found[2])
    return kind(message, param=param, item=item, retry_after=_retry_after(headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Give the seconds to wait; the header that OpenAI's clients know is finer than the standard's."""
    for name, unit in (("retry-after-ms", 1000.0), ("Retry-After", 1.0)):
        try:
            return float(headers[name]) / unit
        except (KeyError, ValueError):  # absent, or a date
            continue
    return None


def _model_status(model: dict[str, Any]) -> ModelStatus:
    known = {item.name for item in fields(WorkerInfo)}
    workers = [WorkerInfo(**{name: worker[name] for name in known & worker.keys()}) for worker in model["workers"]]
    return ModelStatus(model["id"], workers, {lane: Waiting(**counts) for lane, counts in model["queue"].items()})
