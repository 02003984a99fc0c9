"""Which engine `auto` is: on the CPU, ONNX Runtime if it is there, gives torch's vectors, and is faster."""

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.devices import kind_of
from infinity_pool.workers.files.cache import is_surroundings
from infinity_pool.workers.files.content import definition, file_names, has_weights
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress
from infinity_pool.workers.models.choices import engine_module

_TOLERANCE = 1e-5  # of any number of a float32 vector, or relative to it where it is over 1
_LARGEST = 2 * 2**30  # bytes of weights; beyond, exporting takes minutes and a second copy of the disk's space
_SECONDS = 1.0  # of running both engines in turn
_SENTENCE = "Il pleut sur la ville; the quick brown fox jumps over 12 lazy dogs, and nobody (not even she) minded! "
_PROBES = (
    ("What is the capital of France?",),
    ("hello", _SENTENCE, _SENTENCE * 3, "数千年来,人们一直在观察星空。"),
    (_SENTENCE * 9,),
)


def choose(
    converted: Callable[[str], ModelFiles], family: Family, device: str, dtype: str, progress: Progress
) -> dict[str, Any]:
    """
    Choose, and say why.

    `converted(name)` gives the files with what that engine needs. Runs once, in a process of its own.
    """
    torch_files = converted("torch")
    if not has_weights(file_names(torch_files.path)):
        return {"engine": "onnx", "reason": "the model has no weights for torch"}
    if why := _only_torch(torch_files, device, dtype):
        return {"engine": "torch", "reason": why}
    if not family.output:
        return {"engine": "torch", "reason": "torch is the engine for this family"}
    try:
        onnx_files = converted("onnx")
        onnx = engine_module("onnx").load(onnx_files, family, device, dtype)
    except InvalidInput as error:
        return {"engine": "torch", "reason": error.message}
    progress("comparing onnx with torch", None)
    return _race({"torch": engine_module("torch").load(torch_files, family, device, dtype), "onnx": onnx}, family)


def _only_torch(files: ModelFiles, device: str, dtype: str) -> str | None:
    if kind_of(device) != "cpu":
        return f"torch is the engine for {kind_of(device)}"
    if dtype not in ("auto", "float32"):
        return f"torch is the engine for {dtype}"
    if find_spec("onnxruntime") is None:
        return "onnxruntime is not installed"
    size = sum((files.path / name).stat().st_size for name in definition(file_names(files.path)))
    return f"{size / 2**30:.1f} GiB of weights are too many to export" if size > _LARGEST else None


def _race(engines: dict[str, Engine], family: Family) -> dict[str, Any]:
    head = family.head(family.tasks[0], {})
    batches = [family.collate([family.prepare(head, [*map(family.example, texts)], {})]) for texts in _PROBES]
    reference = _run(engines["torch"], batches, family)
    try:
        vectors = _run(engines["onnx"], batches, family)
    except Exception as error:
        if is_surroundings(error):
            raise
        # a graph that traced wrong fails in ways of its own
        return {"engine": "torch", "reason": f"onnx cannot run it: {error}"}
    difference = _difference(vectors, reference)
    if not difference <= _TOLERANCE:  # NaN is no agreement
        return {"engine": "torch", "reason": f"onnx differs from torch by {difference:.1e}"}
    seconds = _time(engines, batches, family)
    ratio = seconds["torch"] / seconds["onnx"]
    reason = f"onnx differs from torch by {difference:.1e} and runs at {ratio:.1f} times its speed"
    return {"engine": "onnx" if ratio > 1 else "torch", "reason": reason}


def _run(engine: Engine, batches: list[Batch], family: Family) -> list[Array]:
    """Give the output of each batch, since those of tokens are as long as their batch."""
    return [engine.run(batch, family.reduce) for batch in batches]


def _difference(outputs: list[Array], reference: list[Array]) -> float:
    pairs = zip(outputs, reference, strict=True)
    return float(np.max([(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))).max() for ours, theirs in pairs]))


def _time(engines: dict[str, Engine], batches: list[Batch], family: Family) -> dict[str, float]:
    """Give each engine's best time for each batch, summed: what else runs on the machine slows some runs, not all."""
    best = {name: [float("inf")] * len(batches) for name in engines}
    until = time.perf_counter() + _SECONDS
    while time.perf_counter() < until:
        for place, batch in enumerate(batches):
            for name, engine in engines.items():
                start = time.perf_counter()
                engine.run(batch, family.reduce)
                best[name][place] = min(best[name][place], time.perf_counter() - start)
    return {name: sum(times) for name, times in best.items()}
