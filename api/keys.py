"""What the application holds, by typed key."""

from aiohttp import web

from infinity_pool.api.access.tenants import Tenants
from infinity_pool.api.media.fetch import Fetcher
from infinity_pool.api.metrics import Metrics
from infinity_pool.api.readiness import Readiness
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.client import QueueClient

SETTINGS = web.AppKey("settings", ApiSettings)
CLIENT = web.AppKey("client", QueueClient)
TENANTS = web.AppKey("tenants", Tenants)
METRICS = web.AppKey("metrics", Metrics)
FETCHER = web.AppKey("fetcher", Fetcher)
READINESS = web.AppKey("readiness", Readiness)
