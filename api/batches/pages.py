"""Lists of files and batches, by pages, as OpenAI has them."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel


class Page(BaseModel):
    """What is listed beside its `data`, and whether there is more after the last."""

    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


def page_of(data: Sequence[dict[str, Any]], more: bool) -> dict[str, Any]:
    """Give a page of what is told, each with its id."""
    ids = [each["id"] for each in data]
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return {"object": "list", "data": data, **ends, "has_more": more}
