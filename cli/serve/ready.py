"""Waits until everything that `infinity serve` started can answer, and says what to do with it."""

import asyncio
import http.client
import ipaddress
import os
from collections.abc import Collection

from redis.asyncio import Redis

from infinity_pool.broker.connection import is_outage
from infinity_pool.broker.presence import WorkerInfo, read_model
from infinity_pool.cli.serve.screen import Screen, States
from infinity_pool.workers.supervise import Supervisor

_LOOK = 0.2  # s between two looks; presence tells its reader nothing by itself
_TIMEOUT = 2.0  # s for the API's word on its health
_KEY_VARIABLE = "INFINITY_API_KEY"


async def until_ready(
    redis: Redis, models: Collection[str], workers: Supervisor, screen: Screen, address: tuple[str, int]
) -> list[WorkerInfo]:
    """Show how loading goes until all workers are ready and the API says so too; give the workers."""
    while True:
        states = await _states(redis, models, workers)
        screen.show(states)
        ready = [info for info in states.values() if info and info.state == "ready"]
        if len(ready) == len(states) and await asyncio.to_thread(_is_healthy, *address):
            screen.done()
            return ready
        await asyncio.sleep(_LOOK)


def welcome(url: str, workers: Collection[WorkerInfo], api_key: str, private_url: str) -> str:
    """
    Say where the API is and what to try, without the key itself.

    `private_url` is the queue's if it is our own, which has no password.
    """
    names = sorted({info.model for info in workers})
    embedders = sorted({info.model for info in workers if "embed" in info.tasks})
    lines = ["", f"Serving {', '.join(names)} on {url}", ""]
    if embedders:
        lines += [_curl(url, embedders[0], api_key), ""]
    lines += [f"  page     {url}/"]
    if private_url:
        lines += [f"  status   infinity status --redis-url {private_url}"]
    return "\n".join([*lines, "  Ctrl-C stops everything.", ""])


def url_of(host: str, port: int) -> str:
    """Give the URL under which this machine reaches an address that a server listens on."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def reachable(host: str) -> str:
    """Give the address to call a server that listens on `host`, which may stand for all addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "::1" if address.version == 6 else "127.0.0.1"


def _curl(url: str, model: str, api_key: str) -> str:
    in_environment = os.environ.get(_KEY_VARIABLE) == api_key
    shown = f"${_KEY_VARIABLE}" if in_environment else "YOUR_KEY"
    key = f' \\\n    -H "Authorization: Bearer {shown}"' if api_key else ""
    hint = "" if in_environment or not api_key else "\n  with the key of --api-key in place of YOUR_KEY"
    return (
        f"  curl {url}/v1/embeddings -H 'Content-Type: application/json'{key} \\\n"
        f"""    -d '{{"model": "{model}", "input": ["Hello, pool!"]}}'{hint}"""
    )


async def _states(redis: Redis, models: Collection[str], workers: Supervisor) -> States:
    try:
        infos = {info.id: info for name in models for info in (await read_model(redis, name)).workers}
    except Exception as error:
        if not is_outage(error):
            raise
        infos = {}
    return {child: infos.get(worker_id) for child, worker_id in workers.worker_ids.items()}


def _is_healthy(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
