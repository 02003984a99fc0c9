"""PyTorch, with the network as transformers has it."""

from pathlib import Path
from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.devices import RUNTIMES, kind_of, usable_cpus
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce
from infinity_pool.workers.networks.network import load_network


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """Nothing: the model's own files are what torch reads."""
    return {}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Load a network on a device."""
    if kind_of(device) in RUNTIMES:
        raise InvalidInput(f"the torch engine has no device {device!r}; the onnx engine has", param="device")
    kind = _dtype(device, dtype)
    return TorchEngine(load_network(files, family.auto_class, kind).to(device), family, device, kind)


class TorchEngine:
    """A network of transformers on one device."""

    def __init__(self, network: Any, family: Family, device: str, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = str(dtype).removeprefix("torch.")
        self._network = network
        self._family = family
        if kind_of(device) == "cpu":
            torch.set_num_threads(usable_cpus())

    @torch.inference_mode()
    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch; `reduce` sees float32 tensors on the device."""
        with device_faults():
            tensors = {name: torch.from_numpy(rows).to(self.device, non_blocking=True) for name, rows in batch.items()}
            inputs = {name: tensors[name] for name in self._family.inputs if name in tensors}
            output = self._family.call(self._network, inputs)
            reduced: Array = reduce(output.float(), tensors).float().cpu().numpy()
            return reduced

    def close(self) -> None:
        """Give the device's memory back."""
        self._network = None
        if kind_of(self.device) == "cuda":
            torch.cuda.empty_cache()


def _dtype(device: str, name: str) -> torch.dtype:
    if name == "auto":
        if kind_of(device) != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        others = "; onnx and ctranslate2 have it" if name == "int8" else ""
        raise InvalidInput(f"the torch engine has no dtype {name!r}{others}", param="dtype")
    return dtype
