"""ONNX Runtime, on the model's own ONNX file or on one exported from its weights."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.devices import kind_of, usable_cpus
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.files.cache import is_surroundings, reading
from infinity_pool.workers.files.content import GRAPHS, INT8_GRAPHS, file_names, has_weights, own_graph
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce
from infinity_pool.workers.networks.probes import worst_cosine

_log = logging.getLogger(__name__)

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_INTEGERS: dict[str, type[np.integer[Any]]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_EXPORTED = "model.onnx"
_QUANTISED = "int8.onnx"
_ELSEWHERE = dict.fromkeys(("bfloat16", "float16"), "; torch does")


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """
    Find or make the graph: the one that is named, one in int8 where that is wanted, else one of the float32 network.

    Gives its file's name, whether that is the model's `own`, its output and dtype, and its cosine to float32. Raises
    InvalidInput if there is neither such a graph nor one to quantise nor weights to export.
    """
    if not family.output:
        raise InvalidInput(f"model {files.spec!r} is of a family that runs on torch only", param="engine")
    if not (files.onnx_file or files.quantised):
        return _whole(files, family, folder, progress)
    facts = _named(files, family) if files.onnx_file else _own_int8(files, family)
    if facts and facts["dtype"] == "float32":
        return facts
    whole = _float32(files, family, folder, progress)
    facts = facts or _quantised(files, folder, whole, progress)
    if whole:
        small, reference = (
            OnnxEngine(_path(each, files, folder), each["output"], "cpu", "") for each in (facts, whole)
        )
        facts["cosine"] = worst_cosine(small, reference, family)
        for export in folder.glob(f"{_EXPORTED}*"):  # which served to compare
            export.unlink()
    return facts


def _whole(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """Take the model's own graph if it is the float32 network's; else export one."""
    from infinity_pool.workers.networks.export import export

    names = file_names(files.path)
    for name in own_graph(names)[:1]:
        facts, fault = _look(files, family, name, any_dtype=not has_weights(names))
        if fault is None:
            return facts
        _log.warning("model %r: its own %s %s; exporting another", files.spec, name, fault)
    progress("exporting to ONNX", None)
    export(files, family, folder / _EXPORTED)
    _check(folder / _EXPORTED)
    return _facts(_EXPORTED, False, family.output, "float32")


def _float32(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any] | None:
    try:
        facts = _whole(files, family, folder, progress)
    except InvalidInput as error:
        _log.warning("model %r: there is no float32 to compare with: %s", files.spec, error.message)
        return None
    return facts if facts["dtype"] == "float32" else None


def _named(files: ModelFiles, family: Family) -> dict[str, Any]:
    names = file_names(files.path)
    if files.onnx_file not in names:
        graphs = ", ".join(name for name in names if name.endswith(".onnx")) or "none"
        raise InvalidInput(f"model {files.spec!r} has no file {files.onnx_file}, but {graphs}", param="onnx_file")
    facts, fault = _look(files, family, files.onnx_file, any_dtype=True)
    if fault:
        raise InvalidInput(f"model {files.spec!r}: its own {files.onnx_file} {fault}", param="onnx_file")
    return facts


def _own_int8(files: ModelFiles, family: Family) -> dict[str, Any] | None:
    for name in own_graph(file_names(files.path), (*INT8_GRAPHS, *GRAPHS))[:1]:
        facts, fault = _look(files, family, name, any_dtype=True)
        if fault is None and facts["dtype"] == "int8":
            return facts
        _log.info("model %r: its own %s %s", files.spec, name, fault or f"is {facts['dtype']}, not int8")
    return None


def _quantised(files: ModelFiles, folder: Path, whole: dict[str, Any] | None, progress: Progress) -> dict[str, Any]:
    from infinity_pool.workers.networks.quantise import quantise

    if whole is None:
        raise InvalidInput(f"model {files.spec!r} has nothing in float32 to be quantised", param="dtype")
    progress("quantising", None)
    quantise(_path(whole, files, folder), folder / _QUANTISED)
    return _facts(_QUANTISED, False, whole["output"], "int8")


def _look(files: ModelFiles, family: Family, name: str, *, any_dtype: bool) -> tuple[dict[str, Any], str | None]:
    """Look into one of the model's own graphs, and say what keeps it from being run."""
    from infinity_pool.workers.networks.graph import look

    graph = look(files.path / name, family.output)
    fault = graph.fault((*family.inputs, *_DERIVED), any_dtype=any_dtype)
    return _facts(name, True, graph.output, graph.dtype), fault


def _facts(name: str, own: bool, output: str | None, dtype: str) -> dict[str, Any]:
    return {"graph": name, "own": own, "output": output, "dtype": dtype, "cosine": None}


def _path(facts: dict[str, Any], files: ModelFiles, folder: Path) -> Path:
    return Path((files.path if facts["own"] else folder) / facts["graph"])


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Open the graph; raises InvalidInput on a dtype or a device it has not, and Damaged on a graph that is."""
    facts, folder = files.extra["onnx"], files.built / "onnx"
    with reading(folder / "facts.json"):
        graph, kind, output = _path(facts, files, folder), str(facts["dtype"]), str(facts["output"])
        own, cosine = facts["own"], facts["cosine"]
    if dtype not in ("auto", kind):
        raise InvalidInput(f"the onnx engine runs {kind} here, not {dtype}{_ELSEWHERE.get(dtype, '')}", param="dtype")
    wanted = kind == "float32" or files.quantised or files.onnx_file
    near = "" if cosine is None else f"; its cosine to float32 is at least {cosine:.4f}"
    what = f"its own {facts['graph']}" if own else "an export"
    _log.log(
        logging.INFO if wanted else logging.WARNING, "model %r: running %s, which is %s%s", files.spec, what, kind, near
    )
    try:
        return OnnxEngine(graph, output, device, kind)
    except InvalidInput:
        if not own:
            with reading(graph):  # is it the graph, or the device?
                _open(graph)
        raise


class OnnxEngine:
    """A graph in ONNX Runtime."""

    def __init__(self, graph: Path, output: str, device: str, dtype: str) -> None:
        self.graph = graph
        self.device = device
        self.dtype = dtype
        self._session = _session(graph, device)
        self._inputs = [(node.name, _integer(node)) for node in self._session.get_inputs()]
        self._output = output

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch; `reduce` sees float32 numpy arrays."""
        feed = {name: _input(name, batch).astype(kind, copy=False) for name, kind in self._inputs}
        with device_faults():
            (output,) = self._session.run([self._output], feed)
            return np.asarray(reduce(output.astype(np.float32, copy=False), batch), np.float32)

    def close(self) -> None:
        """Give the device's memory back."""
        del self._session


def _integer(node: Any) -> type[np.integer[Any]]:
    if node.type not in _INTEGERS:
        raise InvalidInput(f"the graph takes {node.name} as {node.type}, which is not served", param="model")
    return _INTEGERS[node.type]


def _input(name: str, batch: Batch) -> Array:
    return batch[name] if name in batch else _DERIVED[name](batch)


def _no_types(batch: Batch) -> Array:
    return np.zeros_like(batch["input_ids"])


def _positions(batch: Batch) -> Array:
    ids = batch["input_ids"]
    return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)


_DERIVED = {"token_type_ids": _no_types, "position_ids": _positions}
"""Inputs that a graph may have though the tokenizer does not make them."""


_THREADS = {
    "session.intra_op.allow_spinning": "1",
    "session.intra_op.spin_duration_us": "50",
    "session.force_spinning_stop": "1",
}
"""
Its threads spin between two operators, a while, and not between two runs: an eighth of a single text's time is gained.
Spinning as long as it would by default takes the cores from the tokenizer and from the server beside it.
"""


def _session(graph: Path, device: str) -> Any:
    provider = _PROVIDERS.get(kind_of(device))
    if provider is None:
        raise InvalidInput(f"the onnx engine has no device {device!r}; there are cpu and cuda", param="device")
    if provider not in onnxruntime.get_available_providers():
        raise InvalidInput(f"this onnxruntime has no {provider}; {device} needs onnxruntime-gpu", param="device")
    number = {"device_id": int(device.partition(":")[2] or 0)} if kind_of(device) == "cuda" else {}
    try:
        session = onnxruntime.InferenceSession(str(graph), _options(), providers=[(provider, number)])
    except Exception as error:  # its exceptions have no class of their own
        raise InvalidInput(f"onnxruntime cannot load {graph}: {error}", param="engine") from error
    if session.get_providers()[0] != provider:  # it falls back to the CPU without a word
        raise InvalidInput(f"onnxruntime cannot use {device} here; it would run on the CPU", param="device")
    return session


def _check(graph: Path) -> None:
    """Raise InvalidInput if ONNX Runtime cannot load what was just exported."""
    try:
        with device_faults():
            _open(graph)
    except Exception as error:  # its exceptions have no class of their own
        if is_surroundings(error):
            raise
        raise InvalidInput(f"onnxruntime cannot load what was exported: {error}", param="engine") from error


def _open(graph: Path) -> None:
    onnxruntime.InferenceSession(str(graph), _options(), providers=[_PROVIDERS["cpu"]])


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = usable_cpus()
    options.inter_op_num_threads = 1
    for name, value in _THREADS.items():
        options.add_session_config_entry(name, value)
    options.log_severity_level = 3
    return options
