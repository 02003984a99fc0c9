"""Files that are uploaded in a form: written as they come, whatever their size, and forgotten if anything is wrong."""

from collections.abc import AsyncGenerator, Coroutine
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from infinity_pool.api.batches.storage import Storage, place_of
from infinity_pool.api.bodies.forms import FORM, check_origin
from infinity_pool.api.bodies.reading import check_encoding, validated, while_it_comes
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.errors import InvalidInput

T = TypeVar("T")

_CHUNK = 2**18
_MOST_FIELD = 4096  # bytes of a field that is no file
_MOST_PARTS = 16
_ROOM = 2**16  # bytes of a form beside its file
_CUT_OFF = (ValueError, AssertionError, ConnectionError, HttpProcessingError)
"""What aiohttp raises where a form is not what its headers say; after the third nobody hears the answer."""


class UploadFields(BaseModel):
    """What there is in the form beside the file."""

    purpose: Literal["batch"]
    anchor: Literal["created_at"] | None = Field(None, alias="expires_after[anchor]")
    seconds: int | None = Field(None, alias="expires_after[seconds]", ge=3600, le=30 * 86_400)

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.anchor is None) != (self.seconds is None):
            raise PydanticCustomError("expires_after", "expires_after has an anchor and seconds")
        return self


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
    check_encoding(request)
    check_origin(request)
    if (request.content_length or 0) > settings.max_file + _ROOM:
        raise web.HTTPRequestEntityTooLarge(settings.max_file, request.content_length or 0)
    receiving = _Receiving(request, storage, settings, file_id)
    try:
        return await receiving.receive(await request.multipart())
    except _CUT_OFF as error:
        await storage.remove(place_of(file_id))
        raise InvalidInput("the form cannot be read: it is not what its headers say") from error
    except BaseException:
        await storage.remove(place_of(file_id))
        raise


class _Receiving:
    def __init__(self, request: web.Request, storage: Storage, settings: ApiSettings, file_id: str) -> None:
        self._request = request
        self._storage = storage
        self._place = place_of(file_id)
        self._most = settings.max_file
        self._patience = settings.read_timeout
        self._fields: dict[str, str] = {}
        self._file: tuple[str, int] | None = None

    async def receive(self, form: MultipartReader) -> Upload:
        parts = 0
        while (part := await self._soon(form.next())) is not None:
            parts += 1
            if parts > _MOST_PARTS:
                raise InvalidInput(f"the form has over {_MOST_PARTS} parts")
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
        self._file = (
            _name_of(part.filename or ""),
            await self._storage.write(self._place, self._pieces(part, self._most)),
        )

    async def _text(self, part: BodyPartReader, name: str) -> str:
        try:
            return b"".join([piece async for piece in self._pieces(part, _MOST_FIELD)]).decode()
        except web.HTTPRequestEntityTooLarge:
            raise InvalidInput(f"{name[:100]} is over {_MOST_FIELD} bytes", param=name[:100]) from None
        except UnicodeDecodeError:
            raise InvalidInput(f"{name[:100]} is no text in UTF-8", param=name[:100]) from None

    async def _pieces(self, part: BodyPartReader, most: int) -> AsyncGenerator[bytes, None]:
        size = 0
        while piece := await self._soon(part.read_chunk(_CHUNK)):
            size += len(piece)
            if size > most:
                raise web.HTTPRequestEntityTooLarge(most, size)
            yield bytes(piece)

    async def _soon(self, coming: Coroutine[Any, Any, T]) -> T:
        """Await what comes of the form next, however slowly; of what is no part of it there is an end too."""
        return await while_it_comes(self._request, coming, self._patience, "form", self._most + _ROOM)


def _name_of(sent: str) -> str:
    """Give a file's own name, of what can be written in UTF-8."""
    return (PurePath(sent).name or "file")[:255].encode(errors="replace").decode()
