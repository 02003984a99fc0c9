"""Makes an ONNX graph of a network; imports torch, so it runs in a process of its own."""

import warnings
from pathlib import Path
from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.interface import Family, Head, ModelFiles
from infinity_pool.workers.network import load_network

_SAMPLES = ("a text", "another text, which is a little longer than the first")
_OPSET = 17
OUTPUT = "last_hidden_state"


def export(files: ModelFiles, family: Family, graph: Path) -> None:
    """
    Write a float32 graph whose batch and length are free; its output is the last hidden state.

    Raises InvalidInput if torch cannot export the network.
    """
    # eager attention is what ONNX Runtime knows how to fuse: faster than sdpa there, and as exact
    network = load_network(files, family.auto_class, torch.float32, attn_implementation="eager")
    rows = family.prepare(Head("embed"), _SAMPLES, {})
    batch = family.collate([rows])
    inputs = tuple(torch.from_numpy(batch[name]) for name in family.inputs)
    axes = {name: {0: "batch", 1: "length"} for name in (*family.inputs, OUTPUT)}
    try:
        with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                _Bare(network, family.inputs),
                inputs,
                str(graph),
                input_names=list(family.inputs),
                output_names=[OUTPUT],
                dynamic_axes=axes,
                opset_version=_OPSET,
                dynamo=False,
            )
    except Exception as error:
        raise InvalidInput(f"model {files.spec!r} cannot be exported to ONNX: {error}", param="engine") from error


class _Bare(torch.nn.Module):
    """A network that takes its inputs by place and gives its first output alone."""

    def __init__(self, network: torch.nn.Module, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.inputs = inputs

    def forward(self, *arrays: Any) -> Any:
        return self.network(**dict(zip(self.inputs, arrays, strict=True)))[0]
