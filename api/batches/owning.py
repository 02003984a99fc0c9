"""The files and batches that a caller may see: its own, and all if it administers."""

from aiohttp import web

from infinity_pool.api.access.auth import CALLER
from infinity_pool.api.batches.runner import RUNNER, Runner
from infinity_pool.broker import batches, files
from infinity_pool.broker.batches import Batch
from infinity_pool.broker.errors import InvalidInput, NotFound
from infinity_pool.broker.files import StoredFile
from infinity_pool.broker.records import ALL


def runner_of(request: web.Request) -> Runner:
    """Give what keeps files and runs batches; raises InvalidInput where nothing does."""
    runner = request.app.get(RUNNER)
    if runner is None:
        raise InvalidInput("this server keeps no files: it is started without --files")
    return runner


def owner_of(request: web.Request) -> str:
    """Give the owner whose things a caller may list."""
    caller = request[CALLER]
    return ALL if caller.admin else caller.name


async def own_file(request: web.Request, id: str) -> StoredFile:
    """Give a file; raises NotFound if the caller has none of that id."""
    found = await files.get(runner_of(request).redis, id)
    if found is None or owner_of(request) not in (ALL, found.owner):
        raise NotFound(f"there is no file {id[:100]!r}", param="file_id")
    return found


async def own_batch(request: web.Request, id: str) -> Batch:
    """Give a batch; raises NotFound if the caller has none of that id."""
    found = await batches.get(runner_of(request).redis, id)
    if found is None or owner_of(request) not in (ALL, found.owner):
        raise NotFound(f"there is no batch {id[:100]!r}", param="batch_id")
    return found
