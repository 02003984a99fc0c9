"""What a key has left, in the headers that OpenAI's clients read."""

import time

from infinity_pool.broker.callers import Caller
from infinity_pool.broker.limiting import Standing

_MINUTE = 60.0  # s


def rate_headers(caller: Caller, standing: Standing | None) -> dict[str, str]:
    """
    Give the limits of a key that has some, what is left, and in what time all of it will be again.

    Tokens are those of a minute, or where they have no limit those of the day, or else the month.
    """
    headers: dict[str, str] = {}
    if most := caller.requests_per_minute:
        _minute(headers, "requests", most, standing.requests if standing else most, standing)
    if most := caller.tokens_per_minute:
        _minute(headers, "tokens", most, standing.tokens if standing else most, standing)
    elif most := caller.tokens_per_day or caller.tokens_per_month:
        left = most if standing is None else standing.day if caller.tokens_per_day else standing.month
        headers |= {"x-ratelimit-limit-tokens": str(most), "x-ratelimit-remaining-tokens": str(left)}
    return headers


def _minute(headers: dict[str, str], what: str, most: int, left: int, standing: Standing | None) -> None:
    """Tell of a bucket, filled up by what has come since it was counted."""
    since = time.monotonic() - standing.at if standing else 0.0
    now = min(most, left + int(since * most / _MINUTE))
    headers[f"x-ratelimit-limit-{what}"] = str(most)
    headers[f"x-ratelimit-remaining-{what}"] = str(now)
    headers[f"x-ratelimit-reset-{what}"] = _duration((most - now) * _MINUTE / most)


def _duration(seconds: float) -> str:
    """Write a time as OpenAI does: 20ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds, 1), 60)
    return f"{minutes:.0f}m{rest:.0f}s" if minutes else f"{rest:g}s"
