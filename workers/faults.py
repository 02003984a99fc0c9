"""What an engine raises when the device, and not the item, is at fault."""

from collections.abc import Iterator
from contextlib import contextmanager

_NO_ROOM = ("out of memory", "can't allocate memory", "failed to allocate", "bad_alloc", "bad allocation")
_LOST = ("cuda error", "cuda failure", "cublas failure", "cudnn failure", "illegal memory access", "hip error")


class OutOfMemory(Exception):
    """The device has no room for a batch of this size; a smaller one may do."""


class DeviceLost(Exception):
    """The device will run nothing more in this process, as after an illegal access; only a new process helps."""


@contextmanager
def device_faults() -> Iterator[None]:
    """
    Raise OutOfMemory or DeviceLost for what torch and ONNX Runtime say in many ways, some of them in words alone.

    A device without room is not lost, though its message may begin with the same words.
    """
    try:
        yield
    except MemoryError as error:
        raise OutOfMemory(str(error)) from error
    except Exception as error:
        words = str(error).lower()
        if any(said in words for said in _NO_ROOM):
            raise OutOfMemory(str(error)) from error
        if any(said in words for said in _LOST):
            raise DeviceLost(str(error)) from error
        raise
