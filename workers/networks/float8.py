"""
float8 (e4m3) weights by torchao: half the bytes of half precision, and products of 8 bits on GPUs that have them.

The products are torchao's; tables of embeddings, half of a small model, are kept here in the same format, with a scale
for each row (https://arxiv.org/abs/2209.05433 describes the format).
"""

from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device.devices import kind_of

NAME = "float8"
MOST_BYTES = 0.55
"""The part of float16's bytes that weights may have, or it is not worth what it costs in precision."""
LEAST_COSINE = 0.99
"""How near outputs must be to those of the network that was not quantised."""

_FORMAT = torch.float8_e4m3fn
_CAPABILITY = (8, 9)  # of NVIDIA's, from which on they have such products
_AMD = ("gfx94", "gfx95", "gfx12")  # AMD's that have
_MULTIPLE = 16  # of which both sides of a product must be


def refuse_without(device: str) -> None:
    """Raise InvalidInput on a device that has no products in float8, and where torchao is not installed."""
    if kind_of(device) != "cuda":
        raise InvalidInput(f"float8 needs a GPU that multiplies in it, which {device} is not", param="dtype")
    if torch.version.hip:
        name = torch.cuda.get_device_properties(device).gcnArchName
        able = name.startswith(_AMD)
    else:
        capability = torch.cuda.get_device_capability(device)
        name, able = "compute capability {}.{}".format(*capability), capability >= _CAPABILITY
    if not able:
        raise InvalidInput(f"float8 needs compute capability 8.9, or gfx94 of AMD; {device} has {name}", param="dtype")


def quantise(network: Any, dynamic: bool) -> None:
    """
    Quantise a network on its device; `dynamic`: what the weights are multiplied with too, in each run.

    Raises InvalidInput without torchao, and if the weights are still more than MOST_BYTES.
    """
    try:
        from torchao.quantization import (
            Float8DynamicActivationFloat8WeightConfig,
            Float8WeightOnlyConfig,
            PerRow,
            quantize_,
        )
    except ModuleNotFoundError as error:
        raise InvalidInput(f"float8 needs {error.name!r}, which is not installed: extra fp8", param="dtype") from error
    whole = 2 * sum(weights.numel() for weights in network.parameters())
    head = _output_layer(network)
    config = Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()) if dynamic else Float8WeightOnlyConfig()
    quantize_(network, config, lambda module, name: module is not head and _fits(module))
    _quantise_tables(network, None if head is None else head.weight)
    if (part := weight_bytes(network) / whole) > MOST_BYTES:
        message = f"in float8 its weights are {part:.0%} of float16's bytes, and over {MOST_BYTES:.0%} is not worth it"
        raise InvalidInput(message, param="dtype")


def weight_bytes(network: Any) -> int:
    """Count the bytes that a network's weights really have."""
    tensors = {id(one): one for one in (*network.parameters(), *_tables(network))}
    return sum(_bytes(one) for one in tensors.values())


class Float8Embedding(torch.nn.Module):
    """A table of embeddings in float8, with a scale for each row; gives what the table it is made of gave."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.dtype = weight.dtype
        scale = (weight.float().abs().amax(1, keepdim=True) / torch.finfo(_FORMAT).max).clamp(min=1e-12)
        self.register_buffer("table", (weight.float() / scale).to(_FORMAT).view(torch.uint8))  # bytes can be indexed
        self.register_buffer("scale", scale)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Give the rows of some ids."""
        rows: Any = self.table[ids]  # type: ignore[index]
        scale: Any = self.scale[ids]  # type: ignore[index]
        found: torch.Tensor = (rows.view(_FORMAT).float() * scale).to(self.dtype)
        return found


def _output_layer(network: Any) -> Any:
    """Give the layer that makes logits of words, which families may read: it stays as it is."""
    return network.get_output_embeddings() if hasattr(network, "get_output_embeddings") else None


def _fits(module: Any) -> bool:
    return isinstance(module, torch.nn.Linear) and not any(size % _MULTIPLE for size in module.weight.shape)


def _quantise_tables(network: Any, shared: Any) -> None:
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Embedding and child.weight is not shared:
                setattr(module, name, Float8Embedding(child.weight.detach()))


def _tables(network: Any) -> list[torch.Tensor]:
    tables = (module for module in network.modules() if isinstance(module, Float8Embedding))
    return [tensor for table in tables for tensor in table.buffers()]


def _bytes(tensor: Any) -> int:
    parts = [getattr(tensor, name) for name in getattr(tensor, "tensor_data_names", ())]
    return sum(part.nbytes for part in parts if part is not None) or int(tensor.nbytes)
