"""PyTorch, with the network as transformers has it."""

import logging
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.devices import RUNTIMES, kind_of, usable_cpus
from infinity_pool.workers.faults import DeviceLost, OutOfMemory, device_faults
from infinity_pool.workers.interface import Batch, Engine, Family, ModelFiles, Progress, Reduce
from infinity_pool.workers.networks import float8
from infinity_pool.workers.networks.network import load_network
from infinity_pool.workers.networks.packing import FLASH, VARLEN, Packing, Plan, plan, why_padded
from infinity_pool.workers.networks.probes import least_cosine, outputs, probe_batches
from infinity_pool.workers.networks.transfer import transfer_for

_log = logging.getLogger(__name__)

_LEAST_COSINE = {"float32": 1 - 1e-5, "float16": 0.995}
"""How near another way to run a network must come to the plain one, by its dtype; with fewer bits less is asked for."""
_LEAST_COSINE_OF_OTHERS = 0.98

_REFUSED = (ImportError, ValueError)
"""What transformers raises for an attention that is not installed, or that a network has not."""


def convert(files: ModelFiles, family: Family, folder: Any, progress: Progress) -> dict[str, Any]:
    """Nothing: the model's own files are what torch reads."""
    return {}


def load(files: ModelFiles, family: Family, device: str, dtype: str) -> Engine:
    """
    Load a network on a device: quantised if it is to be, with the fastest attention there is, compiled if asked.

    Raises InvalidInput where the device, the model or torch cannot.
    """
    if kind_of(device) in RUNTIMES:
        raise InvalidInput(f"the torch engine has no device {device!r}; the onnx engine has", param="device")
    if dtype == float8.NAME:
        float8.refuse_without(device)
    kind = _dtype(device, dtype)
    whole = _whole(files, family) if kind_of(device) == "cpu" and kind is not torch.float32 else None
    engine = TorchEngine(load_network(files, family.auto_class, kind).to(device), family, device, kind)
    if whole is not None:
        engine.compare(whole)
    if dtype == float8.NAME:
        engine.quantise(dynamic=True)
    if kind_of(device) == "cuda":
        engine.choose_attention()
    if files.compiled:
        engine.compile()
    _log.info("model %r: attention is %s, batches are %s", files.spec, engine.attention, engine.layout)
    return engine


def _whole(files: ModelFiles, family: Family) -> list[Array]:
    """Give some texts' outputs in float32; for CPUs, where half precision is an exception."""
    return TorchEngine(load_network(files, family.auto_class, torch.float32), family, "cpu", torch.float32).probe()


class TorchEngine(Engine):
    """
    A network of transformers on one device; several threads may run batches, whose copies then overlap.

    Whatever is changed in how it runs is compared with how it ran before, on some texts; `packed` says whether batches
    are run without padding, and `layout` says why not.
    """

    def __init__(self, network: Any, family: Family, device: str, dtype: torch.dtype) -> None:
        self.device = _shown(device)
        self.dtype = str(dtype).removeprefix("torch.")
        self.layout = "padded"
        self.cosine: float | None = None
        self._network = network
        self._family = family
        self._call: Callable[..., Any] = family.call
        self._packing: Packing | None = None
        self._transfer = transfer_for(device)
        self._alone = threading.Lock()
        if kind_of(device) == "cpu":
            torch.set_num_threads(usable_cpus())

    @property
    def packed(self) -> bool:
        """Whether batches are run without padding."""
        return self._packing is not None

    @property
    def attention(self) -> str:
        """What computes the attention, by its name in transformers."""
        return str(getattr(getattr(self._network, "config", None), "_attn_implementation", None) or "its own")

    def run(self, batch: Batch, reduce: Reduce) -> Array:
        """Run one batch; `reduce` sees float32 tensors on the device."""
        with device_faults():
            with self._alone, torch.inference_mode():
                wait = self._start(batch, reduce)
            return wait()

    def close(self) -> None:
        """Give the device's memory back."""
        self._network = self._packing = None
        self._call = self._family.call
        if kind_of(self.device) == "cuda":
            torch.cuda.empty_cache()

    def probe(self) -> list[Array]:
        """Give some texts' outputs, by which one way to run a network is compared with another."""
        return outputs(self, probe_batches(self._family), self._family)

    def compare(self, whole: list[Array]) -> None:
        """Say how near it comes to outputs in float32."""
        self.cosine = least_cosine(self.probe(), whole)
        _log.info("%s: the cosine of its outputs to those in float32 is at least %.6f", self.dtype, self.cosine)

    def quantise(self, dynamic: bool) -> None:
        """Make the weights float8; raises InvalidInput if they stay too large, or outputs come too far from before."""
        before = self.probe()
        float8.quantise(self._network, dynamic)
        self.cosine = cosine = least_cosine(self.probe(), before)
        if not cosine >= float8.LEAST_COSINE:
            wanted = f"where {float8.LEAST_COSINE} is wanted"
            raise InvalidInput(f"in float8 its cosine to {self.dtype} is {cosine:.4f}, {wanted}", param="dtype")
        part = float8.weight_bytes(self._network) / 2**20
        _log.info("float8: %.0f MiB of weights, cosine to %s at least %.4f", part, self.dtype, cosine)
        self.dtype = float8.NAME

    def choose_attention(self) -> None:
        """Take FlashAttention 2 if it is installed, and batches without padding where the network allows it."""
        flash = [FLASH] if find_spec("flash_attn") else []
        why = why_padded(self._network, self._family)
        if not why:
            any(self.pack(attention) for attention in (*flash, VARLEN))
            return
        self.layout = f"padded: {why}"
        if flash and hasattr(self._network, "set_attn_implementation"):
            self._attend(FLASH)

    def pack(self, attention: str) -> bool:
        """Run batches without padding, with that attention, if this gives what padded ones give; else say why not."""
        before = self.probe()
        try:
            packing = self._packing = Packing(self._network, attention)
        except _REFUSED as error:
            fault = _first_line(error)
        else:
            fault = self._fault(before)
            if fault:
                packing.undo()
                self._packing = None
        self.layout = f"padded: with {attention} {fault}" if fault else "packed"
        return not fault

    def compile(self, backend: Any = "inductor") -> None:
        """Compile the network for any shape, now; raises InvalidInput if torch cannot, or it gives something else."""
        before = self.probe()

        def compiler(function: Callable[..., Any]) -> Callable[..., Any]:
            compiled: Callable[..., Any] = torch.compile(function, dynamic=True, backend=backend)
            return compiled

        if self._packing is not None:
            self._packing.compile(compiler)
        else:
            self._call = compiler(self._family.call)
        if fault := self._fault(before):
            raise InvalidInput(f"this model cannot be compiled: {fault}", param="compile")

    def _attend(self, attention: str) -> None:
        before, usual = self.probe(), self.attention
        try:
            self._network.set_attn_implementation(attention)
            fault = self._fault(before)
        except _REFUSED as error:
            fault = _first_line(error)
        if fault:
            self._network.set_attn_implementation(usual)
            _log.info("attention is %s: with %s %s", usual, attention, fault)

    def _start(self, batch: Batch, reduce: Reduce) -> Callable[[], Array]:
        arrays = dict(batch)
        ahead = plan(batch["attention_mask"]) if self._packing is not None else None
        if ahead is not None:
            arrays |= {"packed_places": ahead.places, "packed_bounds": ahead.bounds}
        tensors = self._transfer.to_device(arrays)
        if self._packing is not None and ahead is not None:
            self._packing.plan = Plan(tensors.pop("packed_places"), tensors.pop("packed_bounds"), ahead.longest)
        inputs = {name: tensors[name] for name in self._family.inputs if name in tensors}
        output = self._call(self._network, inputs)
        return self._transfer.to_host(reduce(output.float(), tensors).float())

    def _fault(self, before: list[Array]) -> str:
        """Say in what the way it runs now differs from before; empty if it does not."""
        try:
            cosine = least_cosine(self.probe(), before)
        except (DeviceLost, OutOfMemory):
            raise
        except Exception as error:  # noqa: BLE001 - kernels and compilers fail in ways of their own
            return f"it fails: {type(error).__name__}: {_first_line(error)}"
        enough = cosine >= _LEAST_COSINE.get(self.dtype, _LEAST_COSINE_OF_OTHERS)  # NaN is no agreement
        return "" if enough else f"outputs differ: their cosine is {cosine:.4f}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _shown(device: str) -> str:
    """Say where cuda is ROCm, whose torch gives it the same name."""
    return f"{device} ROCm" if kind_of(device) == "cuda" and torch.version.hip else device


def _dtype(device: str, name: str) -> torch.dtype:
    """Give what is computed with; for float8 what is not quantised is in half precision."""
    if name in ("auto", float8.NAME):
        if kind_of(device) != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        others = "; onnx and ctranslate2 have it" if name == "int8" else ""
        raise InvalidInput(f"the torch engine has no dtype {name!r}{others}", param="dtype")
    return dtype
