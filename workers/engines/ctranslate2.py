"""CTranslate2: encoders of BERT's kind on its own kernels, in float32, half precision or int8."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.devices import kind_of, usable_cpus
from infinity_pool.workers.faults import device_faults
from infinity_pool.workers.files.cache import Damaged, reading
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce
from infinity_pool.workers.networks.probes import worst_cosine

_log = logging.getLogger(__name__)

_KINDS = {
    "auto": ("float32",),
    "float32": ("float32",),
    "bfloat16": ("bfloat16",),
    "float16": ("float16",),
    "int8": ("int8_float16", "int8_float32"),  # on a GPU, and where there is no half precision
}
"""CTranslate2's names for a number format, the best first."""

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda array: array,
    "relu": lambda array: np.maximum(array, 0),
    "tanh": np.tanh,
}
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


def convert(files: ModelFiles, family: Family, folder: Path, progress: Progress) -> dict[str, Any]:
    """
    Write the network in CTranslate2's form, and compare int8 with float32 if int8 is wanted.

    Raises InvalidInput for a network that it has not.
    """
    from infinity_pool.workers.networks.conversion import convert_network

    if strange := sorted(set(family.inputs) - _INPUTS):
        message = f"model {files.spec!r} cannot be converted for ctranslate2: it takes {', '.join(strange)}"
        raise InvalidInput(message, param="engine")
    progress("converting for ctranslate2", None)
    head = convert_network(files, family, folder)
    cosine = None
    if files.quantised:
        whole, small = (CTranslate2Engine(folder, head, "cpu", dtype) for dtype in ("float32", "int8"))
        cosine = worst_cosine(small, whole, family)
    return {"head": head, "cosine": cosine}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """Load the converted network; raises InvalidInput on a device or a dtype it has not, Damaged on damaged files."""
    folder = files.built / "ctranslate2"
    facts = files.extra["ctranslate2"]
    with reading(folder / "facts.json"):
        head, cosine = facts["head"], facts["cosine"]
    engine = CTranslate2Engine(folder, head, device, dtype)
    if cosine is not None:
        _log.info("model %r: int8, whose cosine to float32 is at least %.4f", files.spec, cosine)
    return engine


class CTranslate2Engine(Engine):
    """An encoder of CTranslate2 on one device; a classifier's head follows it in numpy."""

    def __init__(self, folder: Path, head: list[str], device: str, dtype: str) -> None:
        kind = _kind(device, dtype)
        self.device = device
        self.dtype = kind.partition("_")[0]
        self._encoder = _encoder(folder, device, kind)
        self._activations = [_ACTIVATIONS[name] for name in head]
        with reading(folder / "head.npz"):
            self._head = dict(np.load(folder / "head.npz"))

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch; `reduce` sees float32 numpy arrays."""
        ids = np.ascontiguousarray(batch["input_ids"], np.int32)
        lengths = batch["attention_mask"].sum(1, dtype=np.int32)  # padding is on the right
        with device_faults():
            views = map(ctranslate2.StorageView.from_array, (ids, lengths))
            hidden = self._encoder.forward_batch(*views, token_type_ids=_types(batch)).last_hidden_state
            output = np.array(hidden.to(ctranslate2.DataType.float32).to_device(ctranslate2.Device.cpu))
        return np.asarray(reduce(self._scores(output), batch), np.float32)

    def close(self) -> None:
        """Give the device's memory back."""
        del self._encoder

    def _scores(self, hidden: Array) -> Array:
        """Apply the head, if there is one, to the first token: [n, length, hidden] to [n, labels]."""
        if not self._activations:
            return hidden
        scores = hidden[:, 0]
        for number, activate in enumerate(self._activations):
            scores = activate(scores @ self._head[f"weight{number}"].T + self._head[f"bias{number}"])
        return scores


def _types(batch: Batch) -> list[list[int]] | None:
    """Give token types as lists, the only form that is taken; none where all are 0, which is what none means."""
    types = batch.get("token_type_ids")
    return types.tolist() if types is not None and types.any() else None


def _kind(device: str, dtype: str) -> str:
    """Choose the number format by its name in CTranslate2; raises InvalidInput if the device has none such."""
    if kind_of(device) not in ("cpu", "cuda"):
        raise InvalidInput(f"the ctranslate2 engine has no device {device!r}; there are cpu and cuda", param="device")
    try:
        there = ctranslate2.get_supported_compute_types(kind_of(device), _number(device))
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(f"ctranslate2 cannot use {device} here: {error}", param="device") from error
    for kind in _KINDS.get(dtype, ()):
        if kind in there:
            return kind
    found = ", ".join(name for name, kinds in _KINDS.items() if name != "auto" and there & set(kinds))
    raise InvalidInput(f"the ctranslate2 engine runs {found} on {device}, not {dtype}", param="dtype")


def _number(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _encoder(folder: Path, device: str, kind: str) -> Any:
    try:
        return ctranslate2.Encoder(
            str(folder),
            device=kind_of(device),
            device_index=_number(device),
            compute_type=kind,
            intra_threads=usable_cpus(),
        )
    except (RuntimeError, ValueError) as error:
        if kind_of(device) == "cpu":  # it loads what it wrote, unless that has changed
            raise Damaged(f"{folder} is damaged: {error}") from error
        raise InvalidInput(f"ctranslate2 cannot load the model on {device}: {error}", param="device") from error
