"""The most memory that `infinity embed` has, whatever the number of documents: with an engine that takes no time."""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from tests.benchmarks.backfill.stack import embed, serving, show, write

_LOOK = 0.05  # s


def add_options(options: argparse.ArgumentParser) -> None:
    """Declare the part's options."""
    options.add_argument("--documents", type=int, nargs="+", default=[20_000, 200_000])


def run(asked: argparse.Namespace) -> None:
    """Measure, and print the memory."""
    rows = []
    with serving("--model", "dummy", "--engine", "dummy") as url:
        for count in asked.documents:
            with tempfile.TemporaryDirectory() as name:
                write(Path(name), count)
                started = time.perf_counter()
                most = peak(embed(Path(name), url))
                seconds = time.perf_counter() - started
            rows.append([f"{count:,}", f"{most / 2**20:.1f} MiB", f"{count / seconds:,.0f}"])
    show("infinity embed", ["documents", "most RSS", "items/s, start included"], rows)


def peak(process: "subprocess.Popen[bytes]") -> int:
    """Give the most bytes that a process had, from many looks at it."""
    watched, most = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            most = max(most, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(_LOOK)
    assert process.wait() == 0
    return most
