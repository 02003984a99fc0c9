"""
Items/s of a whole `infinity embed`, from its start to its end, over those of the bare loop on the same documents.

The bare loop is a tokenizer and the same engine in one process, on batches sorted by length: half of the documents
before the backfill, the other half after it, so that a machine whose speed drifts favours neither.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.backfill.stack import MINILM, embed, serving, show, write


def add_options(options: argparse.ArgumentParser) -> None:
    """Declare the part's options."""
    options.add_argument("--documents", type=int, default=100_000)
    options.add_argument("--model", default=MINILM)
    options.add_argument("--engine", choices=["onnx", "torch"], default="onnx")


def run(asked: argparse.Namespace) -> None:
    """Measure, and print the ratio."""
    with tempfile.TemporaryDirectory() as name, serving("--model", asked.model, "--engine", asked.engine) as url:
        file = write(Path(name), asked.documents)
        middle = asked.documents // 2
        before = bare(asked, file, 0, middle)
        backfill = asked.documents / seconds_of(Path(name), url)
        after = bare(asked, file, middle, asked.documents)
    mean = statistics.harmonic_mean([before, after])
    rows = [["bare loop, before", before], ["backfill", backfill], ["bare loop, after", after]]
    show(
        f"{asked.documents:,} documents, {asked.engine}",
        ["", "items/s", "of the bare loop"],
        [[what, f"{rate:,.1f}", f"{rate / mean:.3f}"] for what, rate in rows],
    )


def seconds_of(folder: Path, url: str) -> float:
    """Give the seconds of a whole backfill."""
    started = time.perf_counter()
    assert embed(folder, url).wait() == 0
    return time.perf_counter() - started


def bare(asked: argparse.Namespace, file: Path, first: int, end: int) -> float:
    """Give the items/s of the bare loop on some of the documents, in a process of its own."""
    model = ["--model", asked.model, "--engine", asked.engine]
    command = [sys.executable, "-m", "tests.benchmarks.backfill.bare", str(file), str(first), str(end), *model]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)
