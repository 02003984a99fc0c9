"""Which engine `auto` is: on the CPU, ONNX Runtime if it is there, gives torch's vectors, and is not slower."""

import logging
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InfinityError
from infinity_pool.workers.choices import engine_module
from infinity_pool.workers.content import definition, file_names
from infinity_pool.workers.devices import kind_of
from infinity_pool.workers.interface import Batch, Engine, Family, Head, ModelFiles, Progress

_log = logging.getLogger(__name__)

_TOLERANCE = 1e-5  # of any number of a float32 vector
_LARGEST = 2 * 2**30  # bytes of weights; beyond, exporting takes minutes and a second copy of the disk's space
_SECONDS = 0.4  # of running, for each of the two engines
_SENTENCE = "Il pleut sur la ville; the quick brown fox jumps over 12 lazy dogs, and nobody (not even she) minded! "
_PROBES = (
    "",
    "hello",
    "What is the capital of France?",
    _SENTENCE,
    _SENTENCE * 3,
    "数千年来,人们一直在观察星空。",
    _SENTENCE * 9,
)


def choose(
    converted: Callable[[str], ModelFiles], family: Family, device: str, dtype: str, progress: Progress
) -> dict[str, Any]:
    """
    Choose, and say why.

    `converted(name)` gives the files with what that engine needs. Runs once, in a process of its own.
    """
    torch_files = converted("torch")
    if why := _only_torch(torch_files, device, dtype):
        return {"engine": "torch", "reason": why}
    try:
        onnx_files = converted("onnx")
        progress("comparing onnx with torch", None)
        onnx = engine_module("onnx").load(onnx_files, family, device, dtype)
    except InfinityError as error:
        return {"engine": "torch", "reason": error.message}
    return _race(engine_module("torch").load(torch_files, family, device, dtype), onnx, family)


def _only_torch(files: ModelFiles, device: str, dtype: str) -> str | None:
    if kind_of(device) != "cpu":
        return f"torch is the engine for {kind_of(device)}"
    if dtype not in ("auto", "float32"):
        return f"torch is the engine for {dtype}"
    if find_spec("onnxruntime") is None:
        return "onnxruntime is not installed"
    size = sum((files.path / name).stat().st_size for name in definition(file_names(files.path)))
    return f"{size / 2**30:.1f} GiB of weights are too many to export" if size > _LARGEST else None


def _race(torch: Engine, onnx: Engine, family: Family) -> dict[str, Any]:
    head = Head(family.tasks[0])
    probes = [text for text in _PROBES if text or family.max_length]
    batch = family.collate([family.prepare(head, probes, {})])
    difference = float(np.abs(torch.run(batch, family.reduce) - onnx.run(batch, family.reduce)).max())
    if not difference <= _TOLERANCE:  # NaN is no agreement
        return {"engine": "torch", "reason": f"onnx differs from torch by {difference:.1e}"}
    speeds = {name: _runs_per_second(engine, batch, family) for name, engine in (("torch", torch), ("onnx", onnx))}
    engine = max(speeds, key=lambda name: speeds[name])
    ratio = speeds["onnx"] / speeds["torch"]
    return {"engine": engine, "reason": f"onnx differs by {difference:.1e} and runs at {ratio:.1f} times torch's speed"}


def _runs_per_second(engine: Engine, batch: Batch, family: Family) -> float:
    start, runs = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < _SECONDS:
        engine.run(batch, family.reduce)
        runs += 1
    return runs / spent
