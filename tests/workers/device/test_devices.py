import os
import subprocess
import sys
from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device import devices
from infinity_pool.workers.device.devices import expand, usable_cpus


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_accelerators", lambda: ["cuda:0", "cuda:1"])


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_accelerators", list)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cpu", ["cpu"]),
        ("auto", ["cuda:0", "cuda:1"]),
        ("", ["cuda:0", "cuda:1"]),
        ("cuda", ["cuda:0", "cuda:1"]),
        ("cuda:1", ["cuda:1"]),
        ("cuda:1, cpu", ["cuda:1", "cpu"]),
        ("cuda:0,cuda:1", ["cuda:0", "cuda:1"]),
        ("tensorrt", ["tensorrt:0", "tensorrt:1"]),
        ("migraphx:1,coreml", ["migraphx:1", "coreml"]),
        ("openvino,openvino:GPU.1", ["openvino:CPU", "openvino:GPU.1"]),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_with_gpus(device: str, expected: list[str]) -> None:
    assert expand(device) == expected


@pytest.mark.usefixtures("no_gpu")
def test_without_one() -> None:
    assert expand("auto") == ["cpu"]
    assert expand("rocm") == ["rocm:0"]  # a runtime without torch has its own GPUs


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("device", ["cuda:2", "mps", "gpu", "cpu:0", "cuda:x", "cpu,tpu", "tensorrt:x", "coreml:0"])
def test_what_is_not_there_is_named(device: str) -> None:
    with pytest.raises(InvalidInput, match=f"no device '{device.rpartition(',')[2]}'") as caught:
        expand(device)

    assert caught.value.param == "device"


def test_asking_torch_does_not_import_it() -> None:
    program = "import sys; from infinity_pool.workers.device.devices import _ask_torch"
    code = f"{program}; print(_ask_torch(), 'torch' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert answer.endswith("] False\n")


def test_a_process_bound_to_one_cpu_has_one() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from infinity_pool.workers.device.devices import usable_cpus; print(usable_cpus())"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


@pytest.mark.parametrize(("quota", "most"), [("50000 100000", 1), ("150000 100000", 2), ("max 100000", 10_000)])
def test_a_containers_quota_counts(quota: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    monkeypatch.setattr(devices, "_CGROUP_QUOTA", file)

    assert usable_cpus() == min(most, len(os.sched_getaffinity(0)))


def test_torch_is_told_to_share_and_the_user_can_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)

    devices.share_cores()

    assert (os.environ["GOMP_SPINCOUNT"], os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) == ("7", "128")
