"""
Linear layers over the vectors of tokens: read once from a model's files, then run on the device.

Vectors are numpy arrays or torch tensors, [n, length, width], or anything whose last axis is the width.
"""

import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.files.cache import reading
from infinity_pool.workers.files.locate import read_object
from infinity_pool.workers.text.activations import activation

Layer = dict[str, Any]
"""Plain values: its `name`, its `activation`, whether it is `residual`, and its `width`."""

_WEIGHTS = "projection.safetensors"
_DENSE = ("linear.weight", "linear.bias", "residual.weight")


def read_tensors(place: Path, wanted: Collection[str]) -> dict[str, Array]:
    """Read some weights of a folder, those that it has, as float32; raises InvalidInput if it has no weights at all."""
    found: dict[str, Any] = {}
    files = sorted(place.glob("model*.safetensors")) or sorted(place.glob("pytorch_model*.bin"))
    if not files:
        raise InvalidInput(f"no model.safetensors or pytorch_model.bin in {place}", param="model")
    for file in files:
        found |= (_safe if file.suffix == ".safetensors" else _pickled)(file, wanted)
    return {name: tensor.float().numpy() for name, tensor in found.items()}


def read_linear(file: Path) -> dict[str, Array]:
    """Read the weight and the bias of one layer that torch saved alone, as float32."""
    found = _pickled(file, ("weight", "bias"))
    if "weight" not in found:
        raise InvalidInput(f"{file} holds no linear layer", param="model")
    return {name: tensor.float().numpy() for name, tensor in found.items()}


def _safe(file: Path, wanted: Collection[str]) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:  # numpy has no bfloat16
            return {name: tensors.get_tensor(name) for name in tensors.keys() if name in wanted}  # noqa: SIM118
    except SafetensorError as error:
        raise _unreadable(file, error) from error


def _pickled(file: Path, wanted: Collection[str]) -> dict[str, Any]:
    import torch

    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise _unreadable(file, error) from error
    return {name: tensor for name, tensor in tensors.items() if name in wanted}


def _unreadable(file: Path, error: Exception) -> InvalidInput:
    return InvalidInput(f"{file} cannot be read: {type(error).__name__}", param="model")


def read_dense(place: Path, name: str, usual: str) -> tuple[Layer, dict[str, Array]]:
    """Read a Dense module and its weights; its activation is `usual` where it names none. Raises InvalidInput."""
    config = read_object(place / "config.json")
    kind = str(config.get("activation_function", usual))
    kind = kind.rpartition(".")[2] if kind.startswith("torch.") else kind
    activation(kind)  # refuses what is not served
    weights = read_tensors(place, _DENSE)
    if "linear.weight" not in weights:
        raise InvalidInput(f"no linear.weight in {place}", param="model")
    return dense_layer(name, weights, kind, residual=bool(config.get("use_residual"))), weights


def dense_layer(name: str, weights: dict[str, Array], kind: str = "Identity", residual: bool = False) -> Layer:
    """Describe one layer."""
    return {"name": name, "activation": kind, "residual": residual, "width": len(weights["linear.weight"])}


def write_weights(folder: Path, weights: dict[str, dict[str, Array]]) -> None:
    """Keep the weights of layers, by the layer's name and their own."""
    from safetensors.numpy import save

    flat = {
        f"{layer}.{name}": np.ascontiguousarray(array) for layer, own in weights.items() for name, array in own.items()
    }
    (folder / _WEIGHTS).write_bytes(save(flat))  # whose error on a full disk is one of the disk


class Projection:
    """
    The layers of a model, ready to run.

    Weights are read when they are first needed, so that a preprocessing process never does, and kept on the device.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / _WEIGHTS
        self._weights: dict[type, dict[str, Any]] = {}  # by the kind of array, as engines that are compared share them

    def run(self, vectors: Any, layer: Layer) -> Any:
        """Run one layer."""
        name = layer["name"]
        dense = activation(layer["activation"])(self.linear(vectors, f"{name}.linear"))
        if not layer["residual"]:
            return dense
        return dense + (vectors if dense.shape == vectors.shape else self.linear(vectors, f"{name}.residual"))

    def linear(self, vectors: Any, name: str) -> Any:
        """Multiply by a matrix and add its bias, if it has one."""
        weights = self._loaded(vectors)
        product = vectors @ weights[f"{name}.weight"].T
        bias = weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def _loaded(self, like: Any) -> dict[str, Any]:
        if type(like) not in self._weights:
            from safetensors.numpy import load_file

            own = np.asarray if isinstance(like, np.ndarray) else like.new_tensor
            with reading(self._file):
                arrays = load_file(self._file)
            self._weights[type(like)] = {name: own(array) for name, array in arrays.items()}
        return self._weights[type(like)]
