"""Makes an ONNX graph of a network; imports torch, so it runs in a process of its own."""

import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.files.cache import is_surroundings
from infinity_pool.workers.interface import Family, Head, ModelFiles
from infinity_pool.workers.networks.network import load_network

OUTPUT = "last_hidden_state"

_log = logging.getLogger(__name__)

_SAMPLES = ("a text", "another text, which is a little longer than the first")
_OPSET = 17
_LARGEST = 2**31 - 2**20  # bytes; what one protobuf file can hold

Inputs = dict[str, torch.Tensor]


def export(files: ModelFiles, family: Family, graph: Path) -> None:
    """
    Write a float32 graph whose batch and length are free; its output is the last hidden state.

    Raises InvalidInput if torch cannot export the network.
    """
    # eager attention is what ONNX Runtime knows how to fuse: faster than sdpa there, and as exact
    network = load_network(files, family.auto_class, torch.float32, attn_implementation="eager")
    batch = family.collate([family.prepare(Head(family.tasks[0]), _SAMPLES, {})])
    inputs = {name: torch.from_numpy(batch[name]) for name in family.inputs}
    failures = []
    for exporter in (_trace, _capture):
        try:
            with device_faults(), torch.inference_mode(), warnings.catch_warnings(action="ignore"):
                return exporter(_Bare(network, family.inputs), inputs, graph)
        except Exception as error:  # an exporter meets what it cannot do in many ways
            if is_surroundings(error):
                raise
            failures.append(f"{exporter.__name__.strip('_')}: {str(error)[:200]}")
            _log.info("model %r: %s", files.spec, failures[-1])
    raise InvalidInput(f"model {files.spec!r} cannot be exported to ONNX: {'; '.join(failures)}", param="engine")


class _Bare(torch.nn.Module):
    """A network that takes its inputs by place and gives its first output alone."""

    def __init__(self, network: torch.nn.Module, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs

    def forward(self, *arrays: Any) -> Any:
        return self.network(**dict(zip(self.inputs, arrays, strict=True)))[0]


def _trace(network: torch.nn.Module, inputs: Inputs, graph: Path) -> None:
    """Export by running once: quick, and in the form that ONNX Runtime fuses best."""
    torch.onnx.export(
        network,
        tuple(inputs.values()),
        str(graph),
        input_names=list(inputs),
        output_names=[OUTPUT],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in (*inputs, OUTPUT)},
        opset_version=_OPSET,
        dynamo=False,
    )


def _capture(network: torch.nn.Module, inputs: Inputs, graph: Path) -> None:
    """Export by reading the code: slower, for what cannot be traced."""
    size = sum(weights.numel() * weights.element_size() for weights in network.parameters())
    torch.onnx.export(
        network,
        tuple(inputs.values()),
        str(graph),
        input_names=list(inputs),
        output_names=[OUTPUT],
        dynamic_shapes={"arrays": tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in inputs)},
        external_data=size > _LARGEST,
        dynamo=True,
        verbose=False,
    )
