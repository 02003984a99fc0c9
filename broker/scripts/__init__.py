"""
The scripts that change several keys at once, one `.lua` file each, and how they are called.

Each file names its keys and arguments at its top. A script runs as a whole or not at all, and only here are the
counters of waiting work touched.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from infinity_pool.broker.connection import command


@cache
def _source(name: str) -> tuple[str, str]:
    text = files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


async def run(redis: Redis, name: str, keys: list[str], args: list[Any]) -> Any:
    """Run scripts/<name>.lua; a server that does not know it yet (a restart) is told."""
    text, digest = _source(name)
    try:
        return await command(redis, "EVALSHA", digest, len(keys), *keys, *args)
    except NoScriptError:
        return await command(redis, "EVAL", text, len(keys), *keys, *args)
