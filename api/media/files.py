"""A request's files, wherever they are: in the request, or where it says."""

import asyncio
from collections.abc import Sequence

from infinity_pool.api.media.data_uri import file_of, scheme_of
from infinity_pool.api.media.fetch import Fetcher, Room
from infinity_pool.broker.errors import InvalidInput


async def files_of(values: Sequence[str], fetcher: Fetcher, room: int, timeout: float) -> list[bytes]:
    """
    Decode or fetch a request's files; raises InvalidInput, naming the item, and DeadlineExceeded.

    What is fetched may have `room` bytes in all and take `timeout` seconds. Between two files, other requests have
    their turn.
    """
    files: list[bytes] = []
    places: dict[str, list[int]] = {}
    for item, value in enumerate(values):
        if scheme_of(value) in ("http", "https"):
            places.setdefault(value.partition("#")[0], []).append(item)
            files.append(b"")
        else:
            files.append(_decoded(value, item))
            await asyncio.sleep(0)
    if places:
        fetched = await fetcher.fetch(places, Room(room), timeout)
        for items, data in zip(places.values(), fetched, strict=True):
            for item in items:
                files[item] = data
    return files


def _decoded(value: str, item: int) -> bytes:
    try:
        return file_of(value)
    except InvalidInput as error:
        raise InvalidInput(error.message, item=item) from error
