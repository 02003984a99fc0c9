"""Reads what a server answers instead of a result, as the error of ours that it tells of."""

import re
from collections.abc import Mapping

import orjson

from infinity_pool.broker.errors import BY_CODE, DeadlineExceeded, InfinityError, InvalidInput, Unavailable

_ITEM = re.compile(r"(\w+)\[(\d{1,9})\]")  # a field, and which of its items, as an error's `param` has it
_BY_STATUS: dict[int, type[InfinityError]] = {
    408: DeadlineExceeded,
    502: Unavailable,
    503: Unavailable,
    504: DeadlineExceeded,
}


def error_of(status: int, headers: Mapping[str, str], data: bytes) -> InfinityError:
    """Make the error that an answer tells of; one from something before the server is told by its status."""
    try:
        answer = orjson.loads(data)
        told = answer.get("error", answer)  # Cohere's errors, at /v1/rerank, are flat
        code, message, param = str(told["code"]), str(told["message"]), told["param"]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
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
