"""ONNX Runtime, on the model's own ONNX file or one exported from its weights."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.content import file_names, own_graph
from infinity_pool.workers.devices import kind_of, usable_cpus
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce

_log = logging.getLogger(__name__)

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_OUTPUTS = ("last_hidden_state", "token_embeddings")
_EXPORTED = "model.onnx"


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """Take the model's own graph; where it has none, export one."""
    names = file_names(files.path)
    if graph := own_graph(names):
        _log.info("model %r: using its own %s", files.spec, graph[0])
        return {"own": graph[0]}
    from infinity_pool.workers.export import export

    progress("exporting to ONNX", None)
    export(files, family, folder / _EXPORTED)
    return {}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Open the graph; raises InvalidInput on a dtype it has not, or a device that ONNX Runtime does not really use."""
    if dtype not in ("auto", "float32"):
        raise InvalidInput(f"the onnx engine runs float32, not {dtype}; use the torch engine", param="dtype")
    return OnnxEngine(graph_of(files), device)


def graph_of(files: ModelFiles) -> Path:
    """Give the ONNX file that `convert` chose or made."""
    own = files.extra["onnx"].get("own")
    return files.path / own if own else files.built / "onnx" / _EXPORTED


class OnnxEngine:
    """A graph in ONNX Runtime."""

    dtype = "float32"

    def __init__(self, graph: Path, device: str) -> None:
        self.device = device
        self._session = _session(graph, device)
        self._inputs = [node.name for node in self._session.get_inputs()]
        self._output = _output(self._session)

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch; `reduce` sees float32 numpy arrays."""
        (output,) = self._session.run([self._output], {name: self._input(name, batch) for name in self._inputs})
        return np.asarray(reduce(output, batch), np.float32)

    def close(self) -> None:
        """Give the device's memory back."""
        del self._session

    def _input(self, name: str, batch: Batch) -> Array:
        return batch[name] if name in batch else _DERIVED[name](batch)


def _zeros(batch: Batch) -> Array:
    return np.zeros_like(batch["input_ids"])


def _positions(batch: Batch) -> Array:
    length = batch["input_ids"].shape[1]
    return np.broadcast_to(np.arange(length), batch["input_ids"].shape)


_DERIVED = {"token_type_ids": _zeros, "position_ids": _positions}
"""Inputs that a graph may have though the tokenizer does not make them."""


def _session(graph: Path, device: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = usable_cpus()
    options.inter_op_num_threads = 1
    # a thread that spins while it waits takes its core from the tokenizer and from the server beside it
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    provider = _PROVIDERS.get(kind_of(device))
    if provider is None:
        raise InvalidInput(f"the onnx engine has no device {device!r}; there are cpu and cuda", param="device")
    number = {"device_id": int(device.partition(":")[2] or 0)} if provider == _PROVIDERS["cuda"] else {}
    if provider not in onnxruntime.get_available_providers():
        raise InvalidInput(f"this onnxruntime cannot use {device}; install onnxruntime-gpu", param="device")
    session = onnxruntime.InferenceSession(str(graph), options, providers=[(provider, number)])
    if session.get_providers()[0] != provider:  # it falls back to the CPU without a word
        raise InvalidInput(f"onnxruntime cannot use {device} here; it would run on the CPU", param="device")
    return session


def _output(session: Any) -> str:
    names = [node.name for node in session.get_outputs()]
    for name in _OUTPUTS:
        if name in names:
            return name
    return str(names[0])
