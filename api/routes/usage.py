"""GET /usage: what a key had run; one that administers sees all keys'."""

from datetime import date
from typing import Literal

from aiohttp import web
from pydantic import BaseModel, Field

from infinity_pool.api.access.auth import CALLER
from infinity_pool.api.described import described
from infinity_pool.api.dialects import openai
from infinity_pool.api.keys import TENANTS
from infinity_pool.api.rendering import json_response
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.usage import first_day, today

routes = web.RouteTableDef()


class UsageQuery(BaseModel):
    """Since when."""

    since: str | None = Field(None, description="The first day, as 2026-11-30, in UTC; default: 30 days ago.")


class UsedOfDay(BaseModel):
    """What a key had a model run on a day; `key` is its name, empty for callers without one."""

    day: date
    key: str
    model: str
    task: str
    requests: int
    items: int
    tokens: int


class UsageAnswer(BaseModel):
    """By day, key, model and task; the last second may be missing."""

    object: Literal["list"]
    data: list[UsedOfDay]


@routes.get("/v1/usage")
@routes.get("/usage")
@described(gives=UsageAnswer, query=UsageQuery, also=((400, openai.ErrorAnswer), (503, openai.ErrorAnswer)))
async def usage(request: web.Request) -> web.Response:
    """Tell what the caller's key had run, or what all had, if it may administer."""
    caller = request[CALLER]
    found = await request.app[TENANTS].usage(_day(request.query.get("since")))
    data = [used._asdict() for used in found if caller.admin or used.key == caller.name]
    return json_response({"object": "list", "data": data})


def _day(text: str | None) -> date:
    try:
        return first_day(text)
    except ValueError:
        raise InvalidInput(f"since: it is a day, written as {today()}", param="since") from None
