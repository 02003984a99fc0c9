"""Long random strings without a space, which fill the caches of tokenizers, sent to a real one again and again."""

import asyncio
import random
import string
import time
from pathlib import Path

import aiohttp

from tests.chaos.report import Part
from tests.end_to_end.baseline import Vitals, vitals_of
from tests.end_to_end.load import Tally
from tests.end_to_end.processes import Pool
from tests.tiny_models import save_network

_CALLS = 60
_WHOLE_RUN = 600.0  # s; a shorter run has fewer calls
_STRINGS = 200  # in a call
_CHARS = 12_345  # of a string
_SETTLED = 5  # calls after which memory should have found its level
_GROWTH = 100.0  # MiB of one process


async def memory(folder: Path, seconds: float, seed: int) -> Part:
    """The memory of every process stays where it was after the first calls."""
    model = save_network("bert", folder / "bert")
    options = ("--engine", "torch", "--served-model-name", "m", "--cache-dir", str(folder / "cache"))
    pool = Pool("--model", str(model), *options)
    try:
        await asyncio.to_thread(pool.ready)
        part = Part("memory", Tally())
        rng, before = random.Random(seed), dict[str, Vitals]()
        async with aiohttp.ClientSession(pool.url) as session:
            for call in range(_SETTLED + int(_CALLS * min(1.0, seconds / _WHOLE_RUN))):
                if call == _SETTLED:
                    before = vitals_of(pool.family())
                await _embed(session, rng, part.tally)
        part.failures += [
            f"{name} grew from {before[name].rss:.0f} to {now.rss:.0f} MiB"
            for name, now in vitals_of(pool.family()).items()
            if now.rss > before[name].rss + _GROWTH
        ]
    finally:
        (folder / "pool.log").write_text(pool.output)
        await asyncio.to_thread(pool.end)
    return part


async def _embed(session: aiohttp.ClientSession, rng: random.Random, tally: Tally) -> None:
    texts = ["".join(rng.choices(string.ascii_letters, k=_CHARS)) for _ in range(_STRINGS)]
    began = time.monotonic()
    tally.sent += 1
    async with session.post("/v1/embeddings", json={"model": "m", "input": texts}) as response:
        body = await response.json()
        if response.status == 200 and len(body["data"]) == _STRINGS:
            tally.answered += 1
        else:
            tally.refused[response.status] += 1
    tally.longest = max(tally.longest, time.monotonic() - began)
