"""Waits until everything that `infinity serve` started can answer, and says what to do with it."""

import asyncio
import json
import os
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any

from redis.asyncio import Redis

from infinity_pool.api.first_request import first_request
from infinity_pool.broker.connection import is_outage
from infinity_pool.broker.presence import WorkerInfo, read_model
from infinity_pool.cli.serve.screen import Screen, States
from infinity_pool.workers.supervision.supervise import Supervisor

_LOOK = 0.2  # s between two looks; presence tells its reader nothing by itself
_UNIX = "unix:"
_KEY_VARIABLE = "INFINITY_API_KEY"


async def until_ready(
    redis: Redis, models: Collection[str], workers: Supervisor, screen: Screen, lives: Callable[[], bool]
) -> list[WorkerInfo]:
    """Show how loading goes until all workers are ready and the API `lives`; give the workers."""
    while True:
        states = await _states(redis, models, workers)
        screen.show(states)
        ready = [info for info in states.values() if info and info.state == "ready"]
        if len(ready) == len(states) and await asyncio.to_thread(lives):
            screen.done()
            return ready
        await asyncio.sleep(_LOOK)


def welcome(
    url: str,
    workers: Collection[WorkerInfo],
    api_key: str,
    private_url: str,
    *,
    admin_url: str = "",
    keyed: bool = False,
) -> str:
    """
    Say where the API is and what to try, without the key itself.

    `private_url` is the queue's if it is our own, which has no password; `admin_url` has the page, if not `url`.
    Where keys are asked for, `keyed`, and `api_key` is none of them, the caller has one.
    """
    names = sorted({info.model for info in workers})
    tasks = {info.model: info.tasks for info in workers}
    tried = min(names, key=lambda name: ("embed" not in tasks[name], name), default="")
    lines = ["", f"Serving {', '.join(names)} on {url}", ""]
    if tried:
        lines += [_curl(url, *first_request(tried, tasks[tried]), api_key, keyed), ""]
    if page := admin_url or ("" if url.startswith(_UNIX) else url):
        lines += [f"  page     {page}/"]
    if private_url:
        lines += [f"  status   infinity status --redis-url {private_url}"]
    return "\n".join([*lines, "  Ctrl-C stops everything.", ""])


def _curl(url: str, path: str, body: Mapping[str, Any], api_key: str, keyed: bool) -> str:
    in_environment = bool(api_key) and os.environ.get(_KEY_VARIABLE) == api_key
    shown = _KEY_VARIABLE if in_environment else "YOUR_KEY"
    key = f' \\\n    -H "Authorization: Bearer ${shown}"' if api_key or keyed else ""
    whose = "the key of --api-key" if api_key else "a key"
    hint = f"\n  with {whose} in the variable YOUR_KEY" if key and not in_environment else ""
    place = f"--unix-socket {shlex.quote(url.removeprefix(_UNIX))} http://localhost" if url.startswith(_UNIX) else url
    return (
        f"  curl {place}{path} -H 'Content-Type: application/json'{key} \\\n"
        f"    -d {shlex.quote(json.dumps(body, ensure_ascii=False))}{hint}"
    )


async def _states(redis: Redis, models: Collection[str], workers: Supervisor) -> States:
    try:
        infos = {info.id: info for name in models for info in (await read_model(redis, name)).workers}
    except Exception as error:
        if not is_outage(error):
            raise
        infos = {}
    return {child: infos.get(worker_id) for child, worker_id in workers.worker_ids.items()}
