"""infinity-worker: one model on one device; for several devices or replicas, one process each."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from infinity_pool.broker.policy import check_queue
from infinity_pool.cli.options import read, settings_options
from infinity_pool.cli.process import run_process
from infinity_pool.workers.settings import WorkerSettings
from infinity_pool.workers.supervision.lifeline import follow_parent
from infinity_pool.workers.supervision.supervise import EXIT_REFUSED


@click.command(params=settings_options(WorkerSettings, repeated={"model"}))
@click.version_option(package_name="infinity-pool")
def command(**values: Any) -> None:
    """Take jobs for one model from Redis and run them."""
    settings = read(WorkerSettings, {**values, "model": _only(values["model"])})
    sys.exit(run_process(settings, lambda: _work(settings), refused=EXIT_REFUSED))


def _only(models: Sequence[str]) -> str:
    """Give the one model there is; raises click.UsageError for several, of which a flag would keep but the last."""
    if len(models) > 1:
        raise click.UsageError(
            f"a worker holds one model, but --model (or INFINITY_MODEL) names {len(models)}: {', '.join(models)}; "
            "start one infinity-worker for each, or `infinity serve`, which takes several"
        )
    return models[0]


async def _work(settings: WorkerSettings) -> int:
    from infinity_pool.cli.children import one_per_device, supervise_workers

    workers = one_per_device(settings)
    if len(workers) > 1:
        return await supervise_workers(workers)
    from infinity_pool.workers.process import run_worker  # late: it brings numpy and more along

    await check_queue(settings.redis_url)
    return await run_worker(workers[0])


def main() -> None:
    """Run the console script."""
    follow_parent()
    command(prog_name="infinity-worker")


if __name__ == "__main__":
    main()
