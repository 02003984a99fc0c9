"""How a batch comes onto a device, and its output back: on CUDA beside the batch that is running."""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from infinity_pool.broker.messages import Array
from infinity_pool.workers.device.devices import kind_of

Arrays = dict[str, Array]


class Transfer(Protocol):
    """Copies to and from one device."""

    def to_device(self, arrays: Arrays) -> dict[str, torch.Tensor]:
        """Give tensors on the device, for what is run next in this thread."""
        ...

    def to_host(self, tensor: torch.Tensor) -> Callable[[], Array]:
        """Begin to copy a tensor, and give what waits for it: until then the next batch may be started."""
        ...


def transfer_for(device: str) -> Transfer:
    """Choose by the kind of device; ROCm calls itself cuda, and has all that is used."""
    return Overlapped(device) if kind_of(device) == "cuda" else Direct(device)


class Direct:
    """Copies at once, where there is no memory of its own or nothing that copies beside it: CPU and MPS."""

    def __init__(self, device: str) -> None:
        self._device = device

    def to_device(self, arrays: Arrays) -> dict[str, torch.Tensor]:
        """Give tensors on the device; on the CPU they are the arrays themselves."""
        return {name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}

    def to_host(self, tensor: torch.Tensor) -> Callable[[], Array]:
        """Copy."""
        array: Array = tensor.cpu().numpy()
        return lambda: array


class Overlapped:
    """
    Copies through pinned memory, in a stream of its own to the device, and waits for events, never for all of it.

    So a batch is copied while another runs, and the next one's work is queued while a thread waits for this one's.
    """

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def to_device(self, arrays: Arrays) -> dict[str, torch.Tensor]:
        """Copy beside what runs; the current stream goes on when the copies are there."""
        running = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._copies):
            pinned = {name: torch.from_numpy(array).pin_memory() for name, array in arrays.items()}
            tensors = {name: tensor.to(self._device, non_blocking=True) for name, tensor in pinned.items()}
        running.wait_stream(self._copies)
        for tensor in tensors.values():
            tensor.record_stream(running)  # its memory was given out for the other stream
        return tensors

    def to_host(self, tensor: torch.Tensor) -> Callable[[], Array]:
        """Copy behind what computes it, and wait for that alone."""
        array: Any = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
        there: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        there.record(torch.cuda.current_stream(self._device))

        def wait() -> Array:
            there.synchronize()
            copied: Array = array.numpy()
            return copied

        return wait
