"""infinity-api: the HTTP front door; any number of them, on any machine, share the work."""

import sys
from typing import Any

import click

from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.policy import check_queue
from infinity_pool.cli.options import read, settings_options
from infinity_pool.cli.process import run_process
from infinity_pool.workers.supervision.lifeline import follow_parent
from infinity_pool.workers.supervision.signs import giving_signs
from infinity_pool.workers.supervision.supervise import EXIT_REFUSED


@click.command(params=settings_options(ApiSettings))
@click.version_option(package_name="infinity-pool")
def command(**values: Any) -> None:
    """Serve HTTP: a stateless replica that knows no model."""
    settings = read(ApiSettings, values)
    sys.exit(run_process(settings, lambda: _serve(settings), refused=EXIT_REFUSED))


async def _serve(settings: ApiSettings) -> int:
    from infinity_pool.api.server import serve  # the HTTP stack is not needed to show --help

    await check_queue(settings.redis_url)
    async with giving_signs():
        await serve(settings)
    return 0


def main() -> None:
    """Run the console script."""
    follow_parent()
    command(prog_name="infinity-api")


if __name__ == "__main__":
    main()
