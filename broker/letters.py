"""A model's dead letters: jobs that broke their worker every time they were tried, kept for a person to look at."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis

from infinity_pool.broker import keys, scripts
from infinity_pool.broker.connection import command
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import LANES, Job, decode_job, encode_job

_ID = re.compile(r"\d{1,20}-\d{1,20}")
_PAGE = 100
_NO_LIMIT = 2**53  # letters are few, and a person asks for them


class Letter(NamedTuple):
    """A dead letter: `buried` is Redis's time in seconds; `job` is None where it cannot be read."""

    id: str
    buried: float
    reason: str
    job: Job | None


async def read_letters(redis: Redis, model: str) -> list[Letter]:
    """Give all of a model's dead letters, the oldest first."""
    letters: list[Letter] = []
    start = "-"
    while page := await command(redis, "XRANGE", keys.dead(keys.check_name(model)), start, "+", "COUNT", _PAGE):
        letters += [_letter(entry) for entry in page]
        start = f"({letters[-1].id}"
    return letters


async def retry_letter(redis: Redis, model: str, letter_id: str) -> None:
    """
    Queue a dead letter's job again as if it were new, without a deadline, and drop the letter.

    Its caller has had an error long ago; only a producer with a named reply channel will see what comes of it. Raises
    InvalidInput, naming the letter, if there is none of that id or it cannot be read.
    """
    page = await command(redis, "XRANGE", keys.dead(keys.check_name(model)), _checked(letter_id), letter_id)
    job = _letter(page[0]).job if page else None
    if job is None:
        raise InvalidInput(f"{model} has no dead letter {letter_id} that can be read", param="retry")
    cost, data = job.cost, encode_job(job._replace(ttl_ms=None))
    names = [*(keys.jobs(model, lane) for lane in LANES), keys.waiting(model)]
    lane = LANES.index(job.lane) + 1
    await scripts.run(redis, "submit", names, [_NO_LIMIT, _NO_LIMIT, 1, _NO_LIMIT, lane, cost, len(job.items), data])
    await drop_letters(redis, model, [letter_id])  # only now: a crash between the two makes a double, and loses nothing


async def drop_letters(redis: Redis, model: str, letter_ids: Sequence[str]) -> int:
    """Forget dead letters; gives how many there were."""
    ids = [_checked(letter_id) for letter_id in letter_ids]
    return int(await command(redis, "XDEL", keys.dead(keys.check_name(model)), *ids)) if ids else 0


def _letter(entry: Any) -> Letter:
    entry_id, fields = entry
    told = dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields
    try:
        job = decode_job(told[b"j"])
    except InvalidInput:
        job = None
    return Letter(entry_id.decode(), int(entry_id.split(b"-")[0]) / 1000, told[b"reason"].decode(), job)


def _checked(letter_id: str) -> str:
    if not _ID.fullmatch(letter_id):
        raise InvalidInput(f"{letter_id!r} is no id of a dead letter", param="id")
    return letter_id
