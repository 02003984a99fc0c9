"""The bare loop, a process of its own: some lines of a file through a tokenizer and an engine, sorted by length."""

import argparse
from pathlib import Path

from infinity_pool.cli.bench.raw import Loop, onnx_run, torch_run
from infinity_pool.workers.files.locate import locate
from infinity_pool.workers.settings import ModelSettings

_WARM = 128


def main() -> None:
    """Print the items/s."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("file", type=Path)
    options.add_argument("first", type=int)
    options.add_argument("end", type=int)
    options.add_argument("--model", required=True)
    options.add_argument("--engine", choices=["onnx", "torch"], required=True)
    asked = options.parse_args()
    folder = locate(ModelSettings(model=asked.model), lambda stage, part: None).path
    loop = Loop(folder, torch_run(folder) if asked.engine == "torch" else onnx_run(folder))
    lines = asked.file.read_text().splitlines()[asked.first : asked.end]
    loop.items_per_second(lines[:_WARM])
    print(loop.items_per_second(lines))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main()
