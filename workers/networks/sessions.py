"""ONNX graphs opened in ONNX Runtime, on the device that was asked for and on no other in silence."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.devices import kind_of, usable_cpus
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.files.cache import is_surroundings
from infinity_pool.workers.interface import Batch, GraphSpec
from infinity_pool.workers.networks.providers import CPU, Runtime, Shapes, placed, provider_of, providers_for

_log = logging.getLogger(__name__)

_NUMBERS: dict[str, type[np.number[Any]]] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}
_THREADS = {
    "session.intra_op.allow_spinning": "1",
    "session.intra_op.spin_duration_us": "50",
    "session.force_spinning_stop": "1",
}
"""
Its threads spin between two operators, a while, and not between two runs: an eighth of a single text's time is gained.
Spinning as long as it would by default takes the cores from the tokenizer and from the server beside it.
"""

_RECORD = "session.record_ep_graph_assignment_info"


def _no_types(batch: Batch) -> Array:
    return np.zeros_like(batch["input_ids"])


def _positions(batch: Batch) -> Array:
    ids = batch["input_ids"]
    return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)


DERIVED = {"token_type_ids": _no_types, "position_ids": _positions}
"""Inputs that a graph may have though the tokenizer does not make them."""


class OnnxGraph:
    """
    A graph on a device.

    `device` says what really runs it. Raises InvalidInput if that is not, even in part, what was asked for.
    """

    def __init__(self, path: Path, spec: GraphSpec, runtime: Runtime, sample: Batch | None = None) -> None:
        self.path = path
        self.spec = spec
        self._most = runtime.items
        self._session, self.device = _session(path, runtime, sample or {})
        self._inputs = [(node.name, _number(node)) for node in self._session.get_inputs()]

    def takes(self, batch: Batch) -> bool:
        """Whether a batch is for this graph."""
        return self.spec.inputs[0] in batch

    def run(self, batch: Batch) -> Array:
        """Give the graph's output for a batch, float32 [n, …]; in several runs where the device bounds their items."""
        feed = {name: _input(name, batch).astype(kind, copy=False) for name, kind in self._inputs}
        count = len(batch[self.spec.inputs[0]])
        step = self._most or count
        steps = (slice(at, at + step) for at in range(0, count, step))
        parts = [self._once({name: rows[each] for name, rows in feed.items()}) for each in steps]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _once(self, feed: Batch) -> Array:
        (output,) = self._session.run([self.spec.output], feed)
        return np.asarray(output, np.float32)


def check(graph: Path) -> None:
    """Raise InvalidInput if ONNX Runtime cannot load what was just exported."""
    try:
        with device_faults():
            open_on_cpu(graph)
    except Exception as error:  # its exceptions have no class of their own
        if is_surroundings(error):
            raise
        raise InvalidInput(f"onnxruntime cannot load what was exported: {error}", param="engine") from error


def open_on_cpu(graph: Path) -> None:
    """Open a graph and close it again; raises whatever is said of one that cannot be read."""
    onnxruntime.InferenceSession(str(graph), _options(), providers=[CPU])


def _number(node: Any) -> type[np.number[Any]]:
    if node.type not in _NUMBERS:
        raise InvalidInput(f"the graph takes {node.name} as {node.type}, which is not served", param="model")
    return _NUMBERS[node.type]


def _input(name: str, batch: Batch) -> Array:
    return batch[name] if name in batch else DERIVED[name](batch)


def _session(graph: Path, runtime: Runtime, sample: Batch) -> tuple[Any, str]:
    device = runtime.device
    provider = provider_of(device, onnxruntime.get_available_providers())
    options = _options()
    if provider != CPU:
        options.add_session_config_entry(_RECORD, "1")
    if kind_of(device) in ("cuda", "tensorrt"):
        onnxruntime.preload_dlls()  # from where torch's and NVIDIA's packages have them
    providers = providers_for(provider, runtime, _shapes(graph, sample) if runtime.items else {})
    try:
        session = onnxruntime.InferenceSession(str(graph), options, providers=providers, enable_fallback=0)
    except Exception as error:  # its exceptions have no class of their own
        raise InvalidInput(f"onnxruntime cannot load {graph} on {device}: {error}", param="engine") from error
    if session.get_providers()[0] != provider:  # it falls back to the CPU without a word
        raise InvalidInput(f"onnxruntime cannot use {device} here; it would run on the CPU", param="device")
    return session, device if provider == CPU else _placed(session, device, provider)


def _shapes(graph: Path, sample: Batch) -> Shapes:
    """Give the shape of each input of a graph in a batch like those that will come."""
    inputs = onnxruntime.InferenceSession(str(graph), _options(), providers=[CPU]).get_inputs()
    return {node.name: _input(node.name, sample).shape for node in inputs}


def _placed(session: Any, device: str, provider: str) -> str:
    """Say where operators were put: the provider may be first in the list and yet have none of them."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        _log.warning("onnxruntime %s cannot say which operators run on %s", onnxruntime.__version__, device)
        return f"{device} (which of its operators, this onnxruntime cannot say)"
    operators: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        operators[part.ep_name] += len(part.get_nodes())
    found = placed(device, provider, operators)
    if found != device:
        _log.warning("running on %s", found)
    return found


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = usable_cpus()
    options.inter_op_num_threads = 1
    for name, value in _THREADS.items():
        options.add_session_config_entry(name, value)
    options.log_severity_level = 3
    return options
