"""
AWS Inferentia and Trainium, by optimum-neuron; untested on hardware.

A network is compiled for a few lengths and one number of texts, which takes minutes and is kept; batches are filled up
to these. A worker has one NeuronCore: NEURON_RT_VISIBLE_CORES, or NEURON_RT_NUM_CORES=1 with --replicas.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce
from infinity_pool.workers.networks.buckets import cut, doubling, fill

try:
    from optimum.neuron import NeuronModelForFeatureExtraction, NeuronModelForSequenceClassification
except ImportError as _error:  # it is not installed, or it asks for a version of transformers that is not
    raise InvalidInput(
        f"engine 'neuron' needs optimum-neuron, which does not import here: {_error}", param="engine"
    ) from _error

_CLASSES = {
    "AutoModel": NeuronModelForFeatureExtraction,
    "AutoModelForSequenceClassification": NeuronModelForSequenceClassification,
}
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_ROWS = 8  # texts in a program
_SHORTEST, _LONGEST = 64, 512  # tokens of the programs
_DTYPE = "bfloat16"  # of products; all else is in float32


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """Compile the network for each length; raises InvalidInput for one that is no encoder of single texts."""
    if family.auto_class not in _CLASSES or type(family).call is not Family.call or set(family.inputs) - _INPUTS:
        raise InvalidInput(f"model {files.spec!r} is of a family that does not run on neuron", param="engine")
    lengths = doubling(_SHORTEST, max(_SHORTEST, min(family.max_length, _LONGEST)))
    for place, length in enumerate(lengths):
        progress(f"compiling for Neuron, {length} tokens", place / len(lengths))
        compiled = _CLASSES[family.auto_class].from_pretrained(
            str(files.network),
            export=True,
            batch_size=_ROWS,
            sequence_length=length,
            auto_cast="matmul",
            auto_cast_type="bf16",
            trust_remote_code=files.trust_remote_code,
            local_files_only=True,
        )
        compiled.save_pretrained(folder / str(length))
    return {"lengths": lengths}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Load the programs; raises InvalidInput on another device or dtype, and where the model takes longer texts."""
    if device != "cpu":
        raise InvalidInput(f"the neuron engine has a device of its own, not {device}: leave --device", param="device")
    if dtype not in ("auto", _DTYPE):
        raise InvalidInput(f"the neuron engine runs {_DTYPE}, not {dtype}", param="dtype")
    lengths: list[int] = files.extra["neuron"]["lengths"]
    if family.max_length > lengths[-1]:
        raise InvalidInput(f"the neuron engine takes texts of {lengths[-1]} tokens: say --max-length", param="engine")
    loader = _CLASSES[family.auto_class]
    programs = {length: loader.from_pretrained(str(files.built / "neuron" / str(length))) for length in lengths}
    return NeuronEngine(programs, family)


class NeuronEngine(Engine):
    """Programs of one network, by the length of their texts."""

    device = "neuron"
    dtype = _DTYPE

    def __init__(self, programs: dict[int, Any], family: Family) -> None:
        self._programs = programs
        self._inputs = family.inputs

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch, piece by piece; `reduce` sees float32 numpy arrays."""
        length = batch["input_ids"].shape[1]
        with device_faults():
            pieces = fill(batch, self._inputs, _ROWS, list(self._programs))
            outputs = [cut(self._run(piece), real, length) for piece, real in pieces]
            return np.asarray(reduce(np.concatenate(outputs), batch), np.float32)

    def close(self) -> None:
        """Give the device's memory back."""
        self._programs = {}

    def _run(self, piece: Batch) -> Array:
        program = self._programs[piece["input_ids"].shape[1]]
        output: Array = program(**{name: torch.from_numpy(array) for name, array in piece.items()})[0].float().numpy()
        return output
