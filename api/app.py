"""Puts the HTTP application together."""

import importlib
import pkgutil
from collections.abc import AsyncIterator

from aiohttp import web

from infinity_pool.api import routes
from infinity_pool.api.auth import KeyCheck
from infinity_pool.api.door import Door
from infinity_pool.api.keys import CLIENT, FETCHER, METRICS, READINESS, SETTINGS
from infinity_pool.api.media.fetch import Fetcher
from infinity_pool.api.metrics import Metrics
from infinity_pool.api.readiness import Readiness
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.outbox import QueueLimits


def make_app(settings: ApiSettings) -> web.Application:
    """Make the application; each file in routes/ adds its own paths."""
    metrics = Metrics(lambda: app[CLIENT].status, lambda: app[CLIENT].waiting)
    door = Door(KeyCheck(settings.api_key), metrics)
    app = web.Application(middlewares=[door.answer], client_max_size=settings.max_body)
    app[SETTINGS] = settings
    app[METRICS] = metrics
    app.cleanup_ctx.append(_fetcher)
    app.cleanup_ctx.append(_queue)
    app.on_shutdown.append(door.close)
    for module in pkgutil.iter_modules(routes.__path__):
        app.add_routes(importlib.import_module(f"{routes.__name__}.{module.name}").routes)
    return app


async def _fetcher(app: web.Application) -> AsyncIterator[None]:
    async with Fetcher(app[SETTINGS]) as app[FETCHER]:
        yield


async def _queue(app: web.Application) -> AsyncIterator[None]:
    settings = app[SETTINGS]
    limits = QueueLimits(items=settings.max_queue_items, tokens=settings.max_queue_tokens)
    async with QueueClient(settings.redis_url, timeout=settings.timeout, limits=limits) as client:
        app[CLIENT] = client
        app[READINESS] = Readiness(client, settings.require_model)
        yield
        await app[READINESS].close()
