"""
Embed the lines of a text file through the queue, without HTTP: `python enqueue.py texts.txt vectors.npy`.

It needs a queue with a worker behind it: the URL that `infinity serve` prints, or that of your Redis. The work goes
on the bulk lane, where it waits for people who use the same model. `infinity embed` does the same for large files.
"""

import argparse
import asyncio
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from infinity_pool import Client, InfinityError


async def embed(lines: list[str], *, redis_url: str, model: str) -> NDArray[np.float32]:
    """Embed each line: float32 [lines, width]."""
    vectors = []
    async with Client(redis_url) as client:
        await client.models()  # raises now where the queue cannot be reached, which `map` would wait out
        with Progress() as progress:
            row = progress.add_task(model, total=len(lines))
            async for result in client.map(model, lines):
                if result.error:
                    raise SystemExit(f"line {result.index + 1}: {result.error}")
                vectors.append(result.output)
                progress.advance(row)
    return np.stack(vectors)


def main() -> None:
    """Read the command line and embed the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a text file, one text a line")
    parser.add_argument("target", type=Path, help="the .npy file to write")
    parser.add_argument("--redis-url", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--model", default="minilm")
    args = parser.parse_args()
    lines = args.source.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise SystemExit(f"{args.source} is empty")
    try:
        vectors = asyncio.run(embed(lines, redis_url=args.redis_url, model=args.model))
    except InfinityError as error:  # as where nobody serves the model, or the queue cannot be reached
        raise SystemExit(f"error: {error}") from error
    np.save(args.target, vectors)


if __name__ == "__main__":
    main()
