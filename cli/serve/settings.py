"""What `infinity serve` is told, beside the options of each model."""

from dataclasses import dataclass

from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.settings import CommonSettings, option
from infinity_pool.workers.settings import ProcessSettings


@dataclass(frozen=True, kw_only=True)
class ServeSettings(HttpSettings, ProcessSettings, CommonSettings):
    """Everything on one machine."""

    redis_url: str = option(
        "Redis to use, redis://, rediss:// or unix://; default: a private server, started here.",
        default="",
        secret=True,
    )
    api_processes: int = option("API processes, which share the port.", default=1, minimum=1)
    require_model: tuple[str, ...] = option(
        "A model without which /ready says no, may be repeated; default: all that are served here.", default=()
    )
