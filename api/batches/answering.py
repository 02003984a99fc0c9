"""Has a line of a batch answered, and gives the line of its output; what passes is waited out."""

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from infinity_pool.api.asking import TOKENS
from infinity_pool.api.batches.inside import Inside, answer, told
from infinity_pool.api.bodies.reading import LANE_HEADER
from infinity_pool.api.deadline import TIMEOUT_HEADER
from infinity_pool.broker.callers import Caller
from infinity_pool.broker.connection import is_outage
from infinity_pool.broker.errors import DeadlineExceeded, ModelNotFound, Overloaded, Unavailable

_PASSES = (Unavailable, Overloaded, ModelNotFound)
"""What a batch waits out; its model was there when it began."""

_TRIES = 10  # of what takes too long: the time of one is --max-timeout
_SHORTEST, _LONGEST = 0.1, 30.0  # s between two tries
_LATER = 10.0  # s after the end of its batch when a line ends by itself: its batch should let go of it before
_WHY = {
    "batch_expired": "This request could not be executed before the completion window expired.",
    "batch_cancelled": "This request was not executed before the batch was cancelled.",
}


class Answered(NamedTuple):
    """A line of output, or of the errors."""

    data: bytes
    ok: bool
    tokens: int = 0


class Answering:
    """Answers the lines of one batch, for whoever `caller` gives, until `deadline`, in seconds since 1970."""

    def __init__(self, inside: Inside, endpoint: str, caller: Callable[[], Caller], deadline: float) -> None:
        self._inside = inside
        self._endpoint = endpoint
        self._caller = caller
        self._deadline = deadline
        self.answered_at = time.monotonic()
        self._turn = asyncio.Lock()
        self._calm = 0.0  # when to try again, by the loop's clock: what one line is told concerns its siblings

    async def answer(self, data: bytes) -> Answered:
        """Answer a line, however often that must be tried."""
        line = orjson.loads(data)
        asked, request_id = orjson.dumps(line["body"]), uuid.uuid4().hex
        for tries in itertools.count(1):
            await self._pause()
            request = await self._inside.request(self._endpoint, asked, self._caller(), self._headers())
            try:
                body = await answer(request)
                self.answered_at = time.monotonic()
                return _line(line, 200, request_id, body)._replace(tokens=request.get(TOKENS, 0))
            except Exception as error:  # noqa: BLE001 # every error is answered, as at the door
                if not _passes(error, tries):
                    status, body = await told(request, error, request_id)
                    return _line(line, status, request_id, body)
                self._wait(error)
        raise AssertionError

    def _headers(self) -> dict[str, str]:
        left = max(0.001, self._deadline + _LATER - time.time())
        return {LANE_HEADER: "bulk", TIMEOUT_HEADER: f"{left:.3f}s"}

    def _wait(self, error: Exception) -> None:
        asked = getattr(error, "retry_after", None) or _SHORTEST
        now = asyncio.get_running_loop().time()
        self._calm = max(self._calm, now + min(max(asked, _SHORTEST), _LONGEST))

    async def _pause(self) -> None:
        """Let others in the process have their turn before each line, and know what the line before was told."""
        async with self._turn:
            await asyncio.sleep(max(0.0, self._calm - asyncio.get_running_loop().time()))


def not_run(data: bytes, code: str) -> Answered:
    """Give the line of a request that is not run, because its batch ended before."""
    error = {"code": code, "message": _WHY[code]}
    return Answered(_dumps(orjson.loads(data), None, error), False)


def _passes(error: Exception, tries: int) -> bool:
    if isinstance(error, DeadlineExceeded):
        return tries < _TRIES
    return isinstance(error, _PASSES) or is_outage(error)


def _line(line: dict[str, Any], status: int, request_id: str, body: bytes) -> Answered:
    response = {"status_code": status, "request_id": request_id, "body": orjson.Fragment(body)}
    return Answered(_dumps(line, response, None), status == 200)


def _dumps(line: dict[str, Any], response: dict[str, Any] | None, error: dict[str, str] | None) -> bytes:
    told = {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": line["custom_id"], "response": response, "error": error}
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)
