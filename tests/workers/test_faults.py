import numpy as np
import pytest
import torch

from infinity_pool.workers.faults import DeviceLost, OutOfMemory, device_faults


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", OutOfMemory),
        ("CUDA error: out of memory", OutOfMemory),
        ("Non-zero status code returned: Failed to allocate memory for requested buffer of size 1", OutOfMemory),
        ("std::bad_alloc", OutOfMemory),
        ("CUDA error: an illegal memory access was encountered", DeviceLost),
        ("CUDA failure 700: an illegal memory access", DeviceLost),
        ("mat1 and mat2 shapes cannot be multiplied", RuntimeError),
    ],
)
def test_faults_are_told_by_what_the_libraries_say(said: str, fault: type[Exception]) -> None:
    with pytest.raises(fault, match=said[:4]), device_faults():
        raise RuntimeError(said)


def test_no_room_for_torch() -> None:
    with pytest.raises(OutOfMemory), device_faults():
        torch.empty(10**15)


def test_no_room_for_numpy() -> None:
    with pytest.raises(OutOfMemory), device_faults():
        np.empty(10**15)
