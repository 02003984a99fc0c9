"""What a Redis must be like to be trusted with work."""

import logging

from infinity_pool.broker.connection import connect, is_outage
from infinity_pool.broker.errors import InvalidInput

logger = logging.getLogger(__name__)


async def check_queue(url: str) -> None:
    """
    Look at a Redis before it is used: it must not throw work away when memory is short.

    Raises InvalidInput, saying what to set. That it keeps nothing over a restart is only remarked on, and a private
    one, on a unix socket, is not expected to. One that cannot be reached yet is not judged.
    """
    async with connect(url) as redis:
        try:
            memory, persistence = await redis.info("memory"), await redis.info("persistence")
        except Exception as error:
            if not is_outage(error):
                raise
            return
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise InvalidInput(
            f"this Redis drops work when its memory is full: set its maxmemory-policy to noeviction, not {policy}",
            param="redis_url",
        )
    if not persistence.get("aof_enabled") and not url.startswith("unix:"):
        logger.warning("work that waits is lost if this Redis restarts: it runs without `appendonly yes`")
