"""Makes an ONNX graph of a network; imports torch, so it runs in a process of its own."""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.files.cache import is_surroundings
from infinity_pool.workers.interface import Batch, Family, GraphSpec, ModelFiles
from infinity_pool.workers.networks.network import load_network
from infinity_pool.workers.networks.probes import batch_of

_log = logging.getLogger(__name__)

_SAMPLES = ("a text", "another text, which is a little longer than the first")
_OPSET = 17
_LARGEST = 2**31 - 2**20  # bytes; what one protobuf file can hold

Inputs = dict[str, torch.Tensor]


def export(files: ModelFiles, family: Family, spec: GraphSpec, graph: Path) -> None:
    """
    Write a float32 graph whose batch and length are free; its output is the one that the family reduces.

    Raises InvalidInput if torch cannot export the network.
    """
    # eager attention is what ONNX Runtime knows how to fuse: faster than sdpa there, and as exact where each row of the
    # mask has something to attend to
    attention = "sdpa" if family.counts_unattended else "eager"
    network = load_network(files, family.auto_class, torch.float32, attn_implementation=attention)
    batch = next(batch for batch in map(family.feed, _batches(family)) if spec.inputs[0] in batch)
    inputs = {name: torch.from_numpy(batch[name]) for name in spec.inputs}
    failures = []
    for exporter in (_trace, _capture):
        try:
            with device_faults(), torch.inference_mode(), warnings.catch_warnings(action="ignore"):
                return exporter(_Bare(network, family, spec), inputs, graph)
        except Exception as error:  # an exporter meets what it cannot do in many ways
            if is_surroundings(error):
                raise
            failures.append(f"{exporter.__name__.strip('_')}: {str(error)[:200]}")
            _log.info("model %r: %s", files.spec, failures[-1])
    raise InvalidInput(f"model {files.spec!r} cannot be exported to ONNX: {'; '.join(failures)}", param="engine")


def _batches(family: Family) -> Iterator[Batch]:
    """Give two items in one batch, of texts and then of what else it takes."""
    task = family.tasks[0]
    texts = [*map(family.example, _SAMPLES)]
    for options, items in (({}, texts), *((options, [item] * 2) for options, item in family.probes())):
        yield batch_of(family, task, items, options)


class _Bare(torch.nn.Module):
    """A network that takes its inputs by place and gives only what the family reduces."""

    def __init__(self, network: torch.nn.Module, family: Family, spec: GraphSpec) -> None:
        super().__init__()
        self.network = network
        self.family = family
        self.spec = spec

    def forward(self, *arrays: Any) -> Any:
        return self.family.call(self.network, dict(zip(self.spec.inputs, arrays, strict=True)))


def _trace(network: _Bare, inputs: Inputs, graph: Path) -> None:
    """Export by running once: quick, and in the form that ONNX Runtime fuses best."""
    names = {0: "batch", 1: "length"}
    many = network(*inputs.values()).dim() > 2
    torch.onnx.export(
        network,
        tuple(inputs.values()),
        str(graph),
        input_names=list(inputs),
        output_names=[network.spec.output],
        dynamic_axes={name: _free(names, tensor.dim() == 2) for name, tensor in inputs.items()}
        | {network.spec.output: _free(names, many)},
        opset_version=_OPSET,
        dynamo=False,
    )


def _free(names: dict[int, Any], of_tokens: bool) -> dict[int, Any]:
    """Name the axes that are free: that of items, and of tokens where there is one."""
    return names if of_tokens else {0: names[0]}


def _capture(network: _Bare, inputs: Inputs, graph: Path) -> None:
    """Export by reading the code: slower, for what cannot be traced."""
    free = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    size = sum(weights.numel() * weights.element_size() for weights in network.parameters())
    torch.onnx.export(
        network,
        tuple(inputs.values()),
        str(graph),
        input_names=list(inputs),
        output_names=[network.spec.output],
        dynamic_shapes={"arrays": tuple(_free(free, tensor.dim() == 2) for tensor in inputs.values())},
        external_data=size > _LARGEST,
        dynamo=True,
        verbose=False,
    )
