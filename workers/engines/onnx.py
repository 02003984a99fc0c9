"""ONNX Runtime, on the model's own ONNX files or on some exported from its weights."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.devices import RUNTIMES, kind_of
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.files.cache import keep_newest, reading, surroundings
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce
from infinity_pool.workers.networks.finding import Facts, exported_file, named, own_int8, path_of, quantised, whole
from infinity_pool.workers.networks.probes import probe_batches, worst_cosine
from infinity_pool.workers.networks.providers import Runtime, formats_of, most_items
from infinity_pool.workers.networks.sessions import OnnxGraph, open_on_cpu

_log = logging.getLogger(__name__)

_ELSEWHERE = dict.fromkeys(("bfloat16", "float16"), "; torch does")
_MOST_KEPT = 8 * 2**30  # bytes of what a device's runtime compiled of one model


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """
    Find or make the graphs: the one that is named, those in int8 where that is wanted, else the float32 network's.

    Gives each graph's file, whether that is the model's `own`, its output and dtype; the dtype of all, and their cosine
    to float32. Raises InvalidInput if there are neither such graphs nor some to quantise nor weights to export.
    """
    specs = family.graphs()
    if not specs:
        raise InvalidInput(f"model {files.spec!r} is of a family that runs on torch only", param="engine")
    if files.onnx_file and len(specs) > 1:
        names = " and ".join(spec.name for spec in specs)
        raise InvalidInput(f"model {files.spec!r} is of several graphs, {names}, and one is named", param="onnx_file")
    if not (files.onnx_file or files.quantised):
        return _all({spec.name: whole(files, family, spec, folder, progress) for spec in specs})
    chosen = {spec.name: named(files, spec) if files.onnx_file else own_int8(files, spec) for spec in specs}
    if all(facts and facts["dtype"] == "float32" for facts in chosen.values()):
        return _all(chosen)
    return _beside_float32(files, family, chosen, folder, progress)


def _beside_float32(
    files: ModelFiles, family: Family, chosen: dict[str, Facts | None], folder: Path, progress: Progress
) -> dict[str, Any]:
    """Quantise those graphs that the model has not itself, and compare all with those in float32, if there are."""
    specs = family.graphs()
    reference = _float32(files, family, folder, progress)
    if reference is None and not all(chosen.values()):
        raise InvalidInput(f"model {files.spec!r} has nothing in float32 to be quantised", param="dtype")
    facts = {
        spec.name: chosen[spec.name] or quantised(files, spec, (reference or {})[spec.name], folder, progress)
        for spec in specs
    }
    if reference is None:
        return _all(facts)
    small, exact = (_opened(files, family, each, folder, Runtime("cpu", "")) for each in (facts, reference))
    cosine = worst_cosine(small, exact, family)
    for spec in specs:
        for export in folder.glob(f"{exported_file(spec)}*"):  # which served to compare
            export.unlink()
    return _all(facts, cosine)


def _float32(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Facts] | None:
    try:
        found = {spec.name: whole(files, family, spec, folder, progress) for spec in family.graphs()}
    except InvalidInput as error:
        _log.warning("model %r: there is no float32 to compare with: %s", files.spec, error.message)
        return None
    return found if all(facts["dtype"] == "float32" for facts in found.values()) else None


def _all(graphs: Mapping[str, Facts | None], cosine: float | None = None) -> dict[str, Any]:
    dtypes = [facts["dtype"] for facts in graphs.values() if facts]
    dtype = next((each for each in dtypes if each != "float32"), "float32")
    return {"graphs": graphs, "dtype": dtype, "cosine": cosine}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Open the graphs; raises InvalidInput on a dtype or a device it has not, and Damaged on a graph that is."""
    facts, folder = files.extra["onnx"], files.built / "onnx"
    with reading(folder / "facts.json"):
        graphs, kind, words = dict(facts["graphs"]), str(facts["dtype"]), _words(facts)
        exports = [path_of(each, files, folder) for each in graphs.values() if not each["own"]]
    formats = formats_of(device, kind)
    if dtype not in ("auto", *formats):
        message = f"the onnx engine runs {', '.join(formats)} here, not {dtype}{_ELSEWHERE.get(dtype, '')}"
        raise InvalidInput(message, param="dtype")
    wanted = kind == "float32" or files.quantised or files.onnx_file
    _log.log(logging.INFO if wanted else logging.WARNING, "model %r: running %s", files.spec, words)
    runtime = _runtime(files, family, device, kind if dtype == "auto" else dtype)
    try:
        return _opened(files, family, graphs, folder, runtime)
    except InvalidInput:
        for graph in exports:
            with reading(graph):  # is it the graph, or the device?
                open_on_cpu(graph)
        raise


def _words(facts: dict[str, Any]) -> str:
    own = [each["graph"] for each in facts["graphs"].values() if each["own"]]
    what = f"its own {' and '.join(own)}" if own else "an export"
    near = "" if facts["cosine"] is None else f"; its cosine to float32 is at least {facts['cosine']:.4f}"
    return f"{what}, which is {facts['dtype']}{near}"


def _runtime(files: ModelFiles, family: Family, device: str, dtype: str) -> Runtime:
    cache = files.built / f"{kind_of(device)}-{dtype}" if kind_of(device) in RUNTIMES else None
    if cache:
        with surroundings(cache):
            cache.mkdir(parents=True, exist_ok=True)
            keep_newest(cache, _MOST_KEPT)
    return Runtime(device, dtype, cache, family.max_length, most_items(device, files.batch_tokens))


def _opened(
    files: ModelFiles, family: Family, graphs: Mapping[str, Facts], folder: Path, runtime: Runtime
) -> "OnnxEngine":
    samples = [family.feed(batch) for batch in probe_batches(family)] if runtime.items else []
    opened = []
    for spec in family.graphs():
        facts = graphs[spec.name]
        sample = next((batch for batch in samples if spec.inputs[0] in batch), None)
        path = path_of(facts, files, folder)
        opened.append(OnnxGraph(path, spec._replace(output=facts["output"]), runtime, sample))
    return OnnxEngine(opened, family.feed, runtime.dtype)


class OnnxEngine(Engine):
    """A network's graphs in ONNX Runtime; `device` says what really runs them."""

    def __init__(self, graphs: Sequence[OnnxGraph], feed: Callable[[Batch], Batch], dtype: str) -> None:
        self.graphs = [*graphs]
        self.device = "; ".join(dict.fromkeys(graph.device for graph in graphs))
        self.dtype = dtype
        self._feed = feed

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch through the graph that is for it; `reduce` sees float32 numpy arrays."""
        graph = next(graph for graph in self.graphs if graph.takes(batch))
        with device_faults():
            return np.asarray(reduce(graph.run(self._feed(batch)), batch), np.float32)

    def close(self) -> None:
        """Give the device's memory back."""
        self.graphs.clear()
