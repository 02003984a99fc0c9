"""Files that are uploaded in a form: written as they come, whatever their size, and forgotten if anything is wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import PurePath
from typing import Annotated, Literal, NamedTuple, TypeVar

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, Field, WithJsonSchema

from infinity_pool.api.batches.storage import Storage, place_of
from infinity_pool.api.forms import FORM, check_origin
from infinity_pool.api.reading import validated
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.errors import InvalidInput

T = TypeVar("T")

_CHUNK = 2**18
_MOST_FIELD = 4096  # bytes of a field that is no file
_MOST_PARTS = 16
_ROOM = 2**16  # bytes of a form beside its file


class UploadFields(BaseModel):
    """What there is in the form beside the file."""

    purpose: Literal["batch"]
    anchor: Literal["created_at"] | None = Field(None, alias="expires_after[anchor]")
    seconds: int | None = Field(None, alias="expires_after[seconds]", ge=3600, le=30 * 86_400)


class UploadBody(UploadFields):
    """A form."""

    file: Annotated[str, WithJsonSchema({"type": "string", "format": "binary"})]


class Upload(NamedTuple):
    """A file that is there, its name and its size."""

    filename: str
    size: int
    fields: UploadFields


async def receive(request: web.Request, storage: Storage, settings: ApiSettings, file_id: str) -> Upload:
    """
    Put an uploaded file in its place.

    Raises InvalidInput, and web.HTTPException where nothing comes any more, and for forms of other sites, other media
    types and what is too large.
    """
    if request.content_type != FORM:
        raise web.HTTPUnsupportedMediaType(text=f"send a file as {FORM}")
    check_origin(request)
    if (request.content_length or 0) > settings.max_file + _ROOM:
        raise web.HTTPRequestEntityTooLarge(settings.max_file, request.content_length or 0)
    receiving = _Receiving(storage, settings, file_id)
    try:
        return await receiving.receive(await request.multipart())
    except (
        ValueError,
        AssertionError,
        HttpProcessingError,
    ) as error:  # the second is aiohttp's, of one cut off
        await storage.remove(place_of(file_id))
        raise InvalidInput("the form cannot be read: it is not what its headers say") from error
    except BaseException:
        await storage.remove(place_of(file_id))
        raise


class _Receiving:
    def __init__(self, storage: Storage, settings: ApiSettings, file_id: str) -> None:
        self._storage = storage
        self._place = place_of(file_id)
        self._most = settings.max_file
        self._patience = settings.read_timeout
        self._fields: dict[str, str] = {}
        self._file: tuple[str, int] | None = None

    async def receive(self, form: MultipartReader) -> Upload:
        for _ in range(_MOST_PARTS):
            part = await self._soon(form.next())
            if part is None:
                break
            if not isinstance(part, BodyPartReader) or not part.name:
                raise InvalidInput("the form has a part without a name, or with parts of its own")
            await self._take(part, part.name)
        fields = validated(UploadFields, self._fields)
        if self._file is None:
            raise InvalidInput("file: Field required", param="file")
        return Upload(*self._file, fields)

    async def _take(self, part: BodyPartReader, name: str) -> None:
        if name in self._fields or (name == "file" and self._file):
            raise InvalidInput(f"{name[:100]} is given twice", param=name[:100])
        if name != "file":
            self._fields[name] = await self._text(part, name)
            return
        if "purpose" in self._fields:
            validated(UploadFields, self._fields)  # sooner than when all of the file has come
        filename = PurePath(part.filename or "file").name[:255]
        self._file = filename, await self._storage.write(self._place, self._pieces(part, self._most))

    async def _text(self, part: BodyPartReader, name: str) -> str:
        pieces = [piece async for piece in self._pieces(part, _MOST_FIELD)]
        try:
            return b"".join(pieces).decode()
        except UnicodeDecodeError:
            raise InvalidInput(f"{name[:100]} is no text in UTF-8", param=name[:100]) from None

    async def _pieces(self, part: BodyPartReader, most: int) -> AsyncIterator[bytes]:
        size = 0
        while piece := await self._soon(part.read_chunk(_CHUNK)):
            size += len(piece)
            if size > most:
                raise web.HTTPRequestEntityTooLarge(most, size)
            yield bytes(piece)

    async def _soon(self, coming: Awaitable[T]) -> T:
        """Await what comes of the form next, if anything does."""
        try:
            async with asyncio.timeout(self._patience):
                return await coming
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"nothing more of the form came within {self._patience:g} s") from None
