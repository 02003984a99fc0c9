"""Makes an ONNX graph of a network; imports torch, so it runs in a process of its own."""

import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.files.cache import is_surroundings
from infinity_pool.workers.interface import Family, ModelFiles
from infinity_pool.workers.networks.network import load_network

_log = logging.getLogger(__name__)

_SAMPLES = ("a text", "another text, which is a little longer than the first")
_OPSET = 17
_LARGEST = 2**31 - 2**20  # bytes; what one protobuf file can hold

Inputs = dict[str, torch.Tensor]


def export(files: ModelFiles, family: Family, graph: Path) -> None:
    """
    Write a float32 graph whose batch and length are free; its output is the one that the family reduces.

    Raises InvalidInput if torch cannot export the network.
    """
    # eager attention is what ONNX Runtime knows how to fuse: faster than sdpa there, and as exact
    network = load_network(files, family.auto_class, torch.float32, attn_implementation="eager")
    samples = [*map(family.example, _SAMPLES)]
    batch = family.collate([family.prepare(family.head(family.tasks[0], {}), samples, {})])
    inputs = {name: torch.from_numpy(batch[name]) for name in family.inputs}
    failures = []
    for exporter in (_trace, _capture):
        try:
            with device_faults(), torch.inference_mode(), warnings.catch_warnings(action="ignore"):
                return exporter(_Bare(network, family), inputs, graph)
        except Exception as error:  # an exporter meets what it cannot do in many ways
            if is_surroundings(error):
                raise
            failures.append(f"{exporter.__name__.strip('_')}: {str(error)[:200]}")
            _log.info("model %r: %s", files.spec, failures[-1])
    raise InvalidInput(f"model {files.spec!r} cannot be exported to ONNX: {'; '.join(failures)}", param="engine")


class _Bare(torch.nn.Module):
    """A network that takes its inputs by place and gives only what the family reduces."""

    def __init__(self, network: torch.nn.Module, family: Family) -> None:
        super().__init__()
        self.network = network
        self.family = family

    def forward(self, *arrays: Any) -> Any:
        return self.family.call(self.network, dict(zip(self.family.inputs, arrays, strict=True)))


def _trace(network: _Bare, inputs: Inputs, graph: Path) -> None:
    """Export by running once: quick, and in the form that ONNX Runtime fuses best."""
    output = network.family.output
    torch.onnx.export(
        network,
        tuple(inputs.values()),
        str(graph),
        input_names=list(inputs),
        output_names=[output],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in inputs}
        | {network.family.output: _free(network, inputs)},
        opset_version=_OPSET,
        dynamo=False,
    )


def _free(network: _Bare, inputs: Inputs) -> dict[int, str]:
    """Name the axes of the output that are free: those of items, and of tokens where it has them."""
    return {0: "batch", 1: "length"} if network(*inputs.values()).dim() > 2 else {0: "batch"}


def _capture(network: _Bare, inputs: Inputs, graph: Path) -> None:
    """Export by reading the code: slower, for what cannot be traced."""
    size = sum(weights.numel() * weights.element_size() for weights in network.parameters())
    torch.onnx.export(
        network,
        tuple(inputs.values()),
        str(graph),
        input_names=list(inputs),
        output_names=[network.family.output],
        dynamic_shapes={"arrays": tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in inputs)},
        external_data=size > _LARGEST,
        dynamo=True,
        verbose=False,
    )
