"""Whether a Redis is set up so that no work can vanish from it."""

import logging
from typing import Any

from redis.asyncio import Redis

from infinity_pool.broker.errors import InvalidInput

_KEEPS_ALL = "noeviction"

logger = logging.getLogger(__name__)


async def check_server(redis: Redis) -> None:
    """
    Look at how the server keeps its data; raises InvalidInput, naming `redis_url`, if it may evict what waits.

    What is merely unwise is logged: eviction that no memory limit can set off yet, and a server that keeps nothing.
    """
    memory: dict[str, Any] = await redis.info("memory")
    policy, limit = str(memory.get("maxmemory_policy", _KEEPS_ALL)), int(memory.get("maxmemory", 0))
    if policy != _KEEPS_ALL and limit:
        raise InvalidInput(
            f"Redis may evict jobs and heartbeats: its maxmemory-policy is {policy}, set it to {_KEEPS_ALL}",
            param="redis_url",
        )
    if policy != _KEEPS_ALL:
        logger.warning("Redis has maxmemory-policy %s; set %s before it has a memory limit", policy, _KEEPS_ALL)
    persistence: dict[str, Any] = await redis.info("persistence")
    if not int(persistence.get("aof_enabled", 1)):
        logger.warning("Redis has appendonly no: jobs of producers that do not wait are lost when it restarts")
