"""What is known of the files that callers have; their bytes are elsewhere."""

import time
import uuid
from dataclasses import asdict, dataclass
from typing import Literal

from redis.asyncio import Redis

from infinity_pool.broker import records
from infinity_pool.broker.records import Record

KIND = "files"
_UPLOAD = 86_400  # s
Purpose = Literal["batch", "batch_output"]


@dataclass(frozen=True)
class StoredFile:
    """A file of an owner, who is a key's name; times are in seconds since 1970."""

    id: str
    owner: str
    filename: str
    purpose: Purpose
    bytes: int
    created_at: int
    expires_at: int


def new_id() -> str:
    """Make the id of a file."""
    return f"file-{uuid.uuid4().hex}"


async def add(redis: Redis, file: StoredFile) -> None:
    """Put down a file whose bytes are there."""
    await records.add(redis, KIND, Record(file.id, asdict(file)), file.owner, file.expires_at)


async def expect(redis: Redis, id: str) -> None:
    """Have the bytes of a file that is about to come removed in a day, unless it is put down by then."""
    await records.expect(redis, id, int(time.time()) + _UPLOAD)


async def get(redis: Redis, id: str) -> StoredFile | None:
    """Give a file, None if there is none or its time is over."""
    found = await records.get(redis, id) if id.startswith("file-") else None
    file = records.read(StoredFile, found) if found else None
    return file if file and file.expires_at > time.time() else None


async def page(
    redis: Redis, owner: str, after: str | None, limit: int, order: Literal["asc", "desc"]
) -> tuple[list[StoredFile], str | None]:
    """Give files as `records.page` does."""
    found, more = await records.page(redis, KIND, owner, after, limit, order)
    return [records.read(StoredFile, record) for record in found], more


async def remove(redis: Redis, file: StoredFile) -> None:
    """Forget a file."""
    await records.remove(redis, KIND, file.id, file.owner)
