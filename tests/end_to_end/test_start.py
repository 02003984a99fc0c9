"""However the environment is set, the first request after the start is answered, be it a large batch."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.cli.conftest import Running

from .conftest import Stack
from .processes import until_served

SETTINGS = {"on": {"TOKENIZERS_PARALLELISM": "true"}, "unset": {}}  # which is "false" in the preprocessing pool


async def test_a_batch_first_whatever_tokenizers_are_told(
    stack: Stack, start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that was used before a fork hangs after it; and one that fears to says so in the log."""
    from tests.tiny_models import save_network  # late: it brings torch

    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    folder = save_network("bert", tmp_path / "bert")
    common = ("--model", str(folder), "--engine", "torch", "--cache-dir", str(tmp_path / "cache"))
    own = ("--redis-url", stack.server.url, "--preprocess-workers", "2", "--served-model-name")
    workers = {name: start(Running, "worker", *common, *own, name, **more) for name, more in SETTINGS.items()}
    await asyncio.gather(*(until_served(stack.url, name, patience=60) for name in SETTINGS))

    texts = [f"text {number} of a first batch" for number in range(256)]
    answers = await asyncio.gather(*(vectors(stack.url, texts, name) for name in SETTINGS))

    assert all(len(answer) == 256 for answer in answers)
    assert all(np.allclose(answer, answers[0], atol=1e-5) for answer in answers)
    assert not any("fork" in worker.output for worker in workers.values())


async def vectors(url: str, texts: list[str], model: str) -> list[list[float]]:
    """Embed, within the time that a first request may take."""
    async with (
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=30)) as session,
        session.post("/v1/embeddings", json={"model": model, "input": texts}) as response,
    ):
        assert response.status == 200, await response.text()
        return [row["embedding"] for row in (await response.json())["data"]]
