"""The devices of this machine, told apart without torch in the caller, and the CPUs this process may really use."""

import math
import os
import subprocess
import sys
from pathlib import Path

from infinity_pool.broker.errors import InvalidInput

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg")
RUNTIMES = ("coreml", "migraphx", "openvino", "rocm", "tensorrt")
"""What the onnx engine can run on besides cpu and cuda; whether one is there, only its own library can say."""

_TORCH_ON_SHARED_CORES = {
    # a thread that spins while it waits takes its core from the tokenizer and from the server beside it; this is as
    # long as OpenMP itself spins where it knows that cores are shared, and costs nothing where they are not
    "GOMP_SPINCOUNT": "1000",
    # what oneDNN compiled for each shape; by default 1024 of them, a gigabyte where batches have all kinds of shapes
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
}
_ASK_TORCH = """
import torch
cuda = [f"cuda:{n}" for n in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
print(*(cuda or (["mps"] if torch.backends.mps.is_available() else [])))
"""


def usable_cpus() -> int:
    """Count the CPUs of this process: those it is bound to, and no more than its container's quota of time."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CGROUP_QUOTA.read_text().split()
        return bound if quota == "max" else max(1, min(bound, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup, or an older kind
        return bound


def share_cores() -> None:
    """Let torch share this machine with others; to be called before torch is imported, which reads it once."""
    for name, value in _TORCH_ON_SHARED_CORES.items():
        os.environ.setdefault(name, value)


def kind_of(device: str) -> str:
    """Give `cuda` for `cuda:1`, and also where it is followed by what else is said of a device."""
    return device.partition(" ")[0].partition(":")[0]


def expand(device: str) -> list[str]:
    """
    Turn what `--device` says into the devices to use, one worker each.

    Raises InvalidInput on a device that is unknown or not there.
    """
    names = [part.strip() for part in device.split(",") if part.strip()]
    return [one for name in names or ["auto"] for one in _expand(name)]


def _expand(name: str) -> list[str]:
    kind, _, number = name.partition(":")
    if kind == "cpu" and not number:
        return ["cpu"]
    if kind in RUNTIMES:
        return _expand_runtime(kind, number)
    if kind not in ("auto", "cuda", "mps") or (number and (kind != "cuda" or not number.isdigit())):
        known = ", ".join(("auto", "cpu", "cuda", "cuda:N", "mps", *RUNTIMES))
        raise InvalidInput(f"no device {name!r}; there are {known}", param="device")
    there = _accelerators()
    if kind == "auto":
        return there or ["cpu"]
    found = [device for device in there if device == name or (not number and kind_of(device) == kind)]
    if not found:
        raise InvalidInput(f"no device {name!r} here, only {', '.join([*there, 'cpu'])}", param="device")
    return found


def _expand_runtime(kind: str, part: str) -> list[str]:
    """Give each GPU of a runtime that has several; OpenVINO's parts have names, such as GPU.1 or NPU."""
    if kind == "openvino":
        return [f"{kind}:{part or 'CPU'}"]
    if part and (kind == "coreml" or not part.isdigit()):
        raise InvalidInput(
            f"no device '{kind}:{part}'; {kind} has {'no parts' if kind == 'coreml' else 'numbers'}", param="device"
        )
    if part or kind == "coreml":
        return [f"{kind}:{part}" if part else kind]
    numbers = [device.partition(":")[2] for device in _accelerators() if kind_of(device) == "cuda"]
    return [f"{kind}:{number}" for number in numbers or ["0"]]


def _accelerators() -> list[str]:
    """List the GPUs; most CPU machines are spared the second that torch takes, since they have no driver."""
    may_have = sys.platform != "linux" or any(Path(node).exists() for node in _DRIVERS)
    return _ask_torch() if may_have else []


def _ask_torch() -> list[str]:
    """Ask in a process of its own, since torch is slow to import and holds on to the devices it looks at."""
    answer = subprocess.run([sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, check=False)
    return answer.stdout.split() if answer.returncode == 0 else []
