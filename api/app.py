"""Puts the HTTP application together."""

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.typedefs import Middleware

from infinity_pool.api import routes
from infinity_pool.api.access.tenants import Tenants
from infinity_pool.api.batches.runner import RUNNER, Runner
from infinity_pool.api.door import SERVER, Door
from infinity_pool.api.keys import CLIENT, FETCHER, METRICS, READINESS, SETTINGS, TENANTS
from infinity_pool.api.media.fetch import Fetcher
from infinity_pool.api.metrics import Metrics
from infinity_pool.api.network.admin import AdminPort
from infinity_pool.api.network.cors import Cors
from infinity_pool.api.network.proxies import Proxies
from infinity_pool.api.readiness import Readiness
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.client import QueueClient
from infinity_pool.broker.memory import stay_small
from infinity_pool.broker.outbox import QueueLimits


def make_app(settings: ApiSettings) -> web.Application:
    """Make the application; each file in routes/ adds its own paths."""
    metrics = Metrics(lambda: app[CLIENT].status, lambda: app[CLIENT].waiting, by_key=settings.metrics_by_key)
    tenants = Tenants(settings, metrics)
    door = Door(tenants, metrics)
    inner = [AdminPort(settings.admin_port).answer] if settings.admin_port else []
    app = web.Application(middlewares=[*_outer(settings), door.answer, *inner], client_max_size=settings.max_body)
    app[SETTINGS] = settings
    app[METRICS] = metrics
    app[TENANTS] = tenants
    app.cleanup_ctx.append(_memory)
    app.cleanup_ctx.append(_fetcher)
    app.cleanup_ctx.append(_tenants)
    app.cleanup_ctx.append(_queue)
    if settings.files:
        app[RUNNER] = Runner(app, settings.files)
        app.cleanup_ctx.append(_batches)
        app.on_shutdown.append(app[RUNNER].stop)
    app.on_shutdown.append(door.close)
    app.add_routes(_routes(settings.url_prefix.strip("/")))
    return app


def _outer(settings: ApiSettings) -> list[Middleware]:
    """Give what a request passes before the door, of what was asked for."""
    outer: list[Middleware] = []
    if settings.trusted_proxy:
        outer.append(Proxies(settings.trusted_proxy).answer)
    if settings.cors_origin:
        outer.append(Cors(settings.cors_origin, SERVER).answer)
    return outer


def _routes(prefix: str) -> list[web.RouteDef]:
    """Give the routes of every file in routes/, and, below the prefix, also over others, those of no version."""
    names = [file.name for file in pkgutil.iter_modules(routes.__path__)]
    modules = [importlib.import_module(f"{routes.__name__}.{name}") for name in names]
    found = [route for module in modules for route in module.routes]
    below = [_at(f"/{prefix}{route.path}", route) for route in found if prefix and not _in_version(route.path)]
    taken = {(route.method, route.path) for route in below}
    return below + [route for route in found if (route.method, route.path) not in taken]


def _at(path: str, route: web.RouteDef) -> web.RouteDef:
    return web.RouteDef(route.method, path, route.handler, dict(route.kwargs))


def _in_version(path: str) -> bool:
    return path.startswith(("/v1/", "/v2/"))


async def _memory(app: web.Application) -> AsyncIterator[None]:
    staying_small = asyncio.create_task(stay_small(), name="memory")
    yield
    staying_small.cancel()


async def _fetcher(app: web.Application) -> AsyncIterator[None]:
    async with Fetcher(app[SETTINGS]) as app[FETCHER]:
        yield


async def _tenants(app: web.Application) -> AsyncIterator[None]:
    async with app[TENANTS]:
        yield


async def _queue(app: web.Application) -> AsyncIterator[None]:
    settings = app[SETTINGS]
    limits = QueueLimits(items=settings.max_queue_items, tokens=settings.max_queue_tokens)
    few = settings.online_max_items
    async with QueueClient(settings.redis_url, timeout=settings.timeout, online_max_items=few, limits=limits) as client:
        app[CLIENT] = client
        app[READINESS] = Readiness(client, settings.require_model)
        yield
        await app[READINESS].close()


async def _batches(app: web.Application) -> AsyncIterator[None]:
    async with app[RUNNER]:
        yield
