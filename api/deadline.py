"""How long a request may take: by its headers, and within what this replica allows."""

import asyncio
import re

from aiohttp import web

from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Lane

TIMEOUT_HEADER = "X-Request-Timeout"
"""Seconds, such as 2.5 or 2.5s, or milliseconds, such as 250ms, from the arrival of the request's head."""

_CLIENTS_OWN = ("X-Stainless-Read-Timeout", "X-Stainless-Timeout")
"""Seconds after which OpenAI's clients for Python and JavaScript hang up by themselves."""

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)?", re.ASCII)


class Deadline:
    """
    The end of a request's time, which begins when this is made.

    `X-Request-Timeout` may ask for more than `--timeout`, up to `--max-timeout`, which it is cut to. What OpenAI's
    clients say of themselves only shortens the time. Raises InvalidInput, naming the header, if that is no time.
    """

    def __init__(self, request: web.Request, settings: HttpSettings) -> None:
        self._clock = asyncio.get_running_loop().time
        self._started = self._clock()
        self._asked = _asked(request)
        self._patience = min(_seconds(request.headers.get(name, "")) or settings.max_timeout for name in _CLIENTS_OWN)
        self._settings = settings

    def left(self, lane: Lane) -> float:
        """Give the seconds that are left to a request on a lane, 0 if none are."""
        usual = self._settings.timeout if lane == "online" else self._settings.max_timeout
        allowed = self._asked or min(usual, self._patience)
        return max(0.0, self._started + min(allowed, self._settings.max_timeout) - self._clock())


def _asked(request: web.Request) -> float | None:
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    if seconds := _seconds(text):
        return seconds
    raise InvalidInput(f"{TIMEOUT_HEADER} must be seconds over 0, such as 2.5 or 250ms", param=TIMEOUT_HEADER)


def _seconds(text: str) -> float | None:
    """Read a time; None for what is none, and for 0."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    number, unit = match.groups()
    return (float(number) / (1000 if unit == "ms" else 1)) or None
