"""
TPUs, by torch_xla; untested on hardware.

XLA compiles a program for each shape, so batches are filled up to powers of two, in texts and in tokens; with
XLA_PERSISTENT_CACHE_PATH it keeps them. A worker has one chip: TPU_VISIBLE_CHIPS says which.
"""

from pathlib import Path
from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce
from infinity_pool.workers.networks.buckets import bucket, cut, doubling, fill
from infinity_pool.workers.networks.network import load_network

try:
    import torch_xla
except ImportError as _error:  # it is not installed, or it is made for another version of torch
    raise InvalidInput(
        f"engine 'tpu' needs torch_xla, which does not import here: {_error}", param="engine"
    ) from _error

_DTYPES = {"auto": torch.bfloat16, "bfloat16": torch.bfloat16, "float32": torch.float32}
_SHORTEST, _MOST_ROWS = 32, 256


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """Nothing: the model's own files are what torch reads."""
    return {}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Load a network on a TPU; raises InvalidInput on another device, or a dtype or family that it does not run."""
    if device != "cpu":
        raise InvalidInput(f"the tpu engine has a device of its own, not {device}: leave --device", param="device")
    if dtype not in _DTYPES:
        raise InvalidInput(f"the tpu engine runs {', '.join(_DTYPES)}, not {dtype}", param="dtype")
    if family.modalities != ("text",) or "attention_mask" not in family.inputs:
        raise InvalidInput(f"model {files.spec!r} is of a family that does not run on tpu", param="engine")
    return TpuEngine(load_network(files, family.auto_class, _DTYPES[dtype]), family, _DTYPES[dtype])


class TpuEngine(Engine):
    """A network of transformers on one TPU."""

    device = "tpu"

    def __init__(self, network: Any, family: Family, dtype: torch.dtype) -> None:
        self.dtype = str(dtype).removeprefix("torch.")
        self._place = torch_xla.device()
        self._network = network.to(self._place)
        self._family = family
        self._lengths = doubling(_SHORTEST, max(_SHORTEST, family.max_length))

    @torch.inference_mode()
    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch, in pieces if it is large; `reduce` sees float32 tensors on the CPU."""
        count, length = batch["input_ids"].shape
        rows = bucket(count, doubling(1, _MOST_ROWS))
        with device_faults():
            pieces = fill(batch, self._family.inputs, rows, self._lengths)
            output = torch.cat([cut(self._run(piece), real, length) for piece, real in pieces])
            tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
            reduced: Array = reduce(output, tensors).float().numpy()
            return reduced

    def close(self) -> None:
        """Give the device's memory back."""
        self._network = None

    def _run(self, piece: Batch) -> Any:
        inputs = {name: torch.from_numpy(array).to(self._place) for name, array in piece.items()}
        output = self._family.call(self._network, inputs)
        torch_xla.sync()
        return output.float().cpu()
