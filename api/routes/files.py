"""/files, as OpenAI has it: what batches read and write."""

import time
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from infinity_pool.api.access.auth import CALLER
from infinity_pool.api.batches.owning import own_file, owner_of, runner_of
from infinity_pool.api.batches.pages import Page, page_of
from infinity_pool.api.batches.storage import place_of
from infinity_pool.api.batches.uploading import UploadBody, receive
from infinity_pool.api.bodies.reading import validated
from infinity_pool.api.described import described
from infinity_pool.api.dialects import openai
from infinity_pool.api.keys import SETTINGS
from infinity_pool.api.rendering import json_response
from infinity_pool.broker import batches, files
from infinity_pool.broker.errors import InvalidInput, NotFound
from infinity_pool.broker.files import Purpose, StoredFile

routes = web.RouteTableDef()

_PAGE = 500  # files that are looked at at once
_REFUSED: tuple[tuple[int, Any], ...] = tuple((status, openai.ErrorAnswer) for status in (400, 503))


class FileObject(BaseModel):
    """A file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int = Field(description="Seconds since 1970.")
    expires_at: int = Field(description="When it is removed.")
    filename: str
    purpose: Purpose
    status: Literal["processed"]


class FileList(Page):
    """Some files."""

    data: list[FileObject]


class Deleted(BaseModel):
    """What is there no more."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class FilesQuery(BaseModel):
    """Which files."""

    purpose: str | None = Field(None, description="Only those of this purpose.")
    limit: int = Field(10_000, ge=1, le=10_000, description="How many.")
    after: str | None = Field(None, description="The id after which to go on.")
    order: Literal["asc", "desc"] = Field("desc", description="The newest first (desc), or last.")


@routes.post("/v1/files")
@routes.post("/files")
@described(takes=UploadBody, form=True, gives=FileObject)
async def upload(request: web.Request) -> web.Response:
    """Keep a file of JSON lines, for a batch."""
    runner, settings = runner_of(request), request.app[SETTINGS]
    file_id, now = files.new_id(), int(time.time())
    await files.expect(runner.redis, file_id)
    sent = await receive(request, runner.storage, settings, file_id)
    kept = sent.fields.seconds or int(settings.files_days * 86_400)
    file = StoredFile(file_id, request[CALLER].name, sent.filename, "batch", sent.size, now, now + kept)
    await files.add(runner.redis, file)
    return json_response(_told(file))


@routes.get("/v1/files")
@routes.get("/files")
@described(gives=FileList, query=FilesQuery, also=_REFUSED)
async def listed(request: web.Request) -> web.Response:
    """List the caller's files, or, if it may administer, all."""
    query = validated(FilesQuery, request.query)
    found, more = await _listed(request, query)
    return json_response(page_of([*map(_told, found)], more))


@routes.get("/v1/files/{id}")
@routes.get("/files/{id}")
@described(gives=FileObject, also=_REFUSED)
async def get(request: web.Request) -> web.Response:
    """Tell of a file."""
    return json_response(_told(await own_file(request, request.match_info["id"])))


@routes.get("/v1/files/{id}/content")
@routes.get("/files/{id}/content")
@described(gives="application/octet-stream", also=_REFUSED)
async def content(request: web.Request) -> web.Response:
    """Give what is in a file."""
    file = await own_file(request, request.match_info["id"])
    storage = runner_of(request).storage
    if not await storage.exists(place_of(file.id)):
        raise NotFound(f"the content of {file.id} is gone", param="file_id")
    return web.Response(body=storage.blocks(place_of(file.id)), content_type="application/octet-stream")


@routes.delete("/v1/files/{id}")
@routes.delete("/files/{id}")
@described(gives=Deleted, also=_REFUSED)
async def delete(request: web.Request) -> web.Response:
    """Remove a file that no batch reads."""
    file, runner = await own_file(request, request.match_info["id"]), runner_of(request)
    if user := await batches.uses(runner.redis, file.id):
        raise InvalidInput(f"{file.id} is read by {user}, which can be cancelled first", param="file_id")
    await files.remove(runner.redis, file)
    await runner.storage.remove(place_of(file.id))
    return json_response({"id": file.id, "object": "file", "deleted": True})


async def _listed(request: web.Request, query: FilesQuery) -> tuple[list[StoredFile], bool]:
    """Give some files, and whether there may be more."""
    redis, owner, now = runner_of(request).redis, owner_of(request), time.time()
    found: list[StoredFile] = []
    after = query.after
    while len(found) < query.limit:
        some, after = await files.page(redis, owner, after, min(_PAGE, query.limit), query.order)
        found += [file for file in some if query.purpose in (None, file.purpose) and file.expires_at > now]
        if after is None:
            break
    return found[: query.limit], after is not None or len(found) > query.limit


def _told(file: StoredFile) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }
