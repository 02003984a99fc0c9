"""In which order things are asked of CUDA, told by a stand-in for it; whether the device overlaps them is its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from infinity_pool.workers.networks.transfer import Direct, Overlapped, transfer_for


class Stream:
    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls

    def wait_stream(self, other: "Stream") -> None:
        self.calls.append(f"{self.name} waits for {other.name}")


class Tensor:
    """Stands for a tensor on either side."""

    shape = (2,)
    dtype = torch.float32

    def __init__(self, calls: list[str], current: list[str]) -> None:
        self.calls = calls
        self.current = current

    def _called(self, what: str) -> "Tensor":
        self.calls.append(f"{what} in {self.current[-1]}")
        return self

    def pin_memory(self) -> "Tensor":
        return self._called("pin")

    def to(self, device: Any, non_blocking: bool) -> "Tensor":
        return self._called(f"copy to {device}, {'at once' if non_blocking else 'waiting'}")

    def copy_(self, other: "Tensor", non_blocking: bool) -> "Tensor":
        return self._called(f"copy back, {'at once' if non_blocking else 'waiting'}")

    def record_stream(self, stream: Stream) -> None:
        self.calls.append(f"kept for {stream.name}")

    def numpy(self) -> str:
        self.calls.append("read")
        return "array"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    current = ["running"]

    @contextmanager
    def stream(chosen: Stream) -> Iterator[None]:
        current.append(chosen.name)
        yield
        current.pop()

    class Event:
        def __init__(self, blocking: bool) -> None:
            assert blocking  # a thread that spins takes a core from the tokenizer

        def record(self, stream: Stream) -> None:
            calls.append(f"event in {stream.name}")

        def synchronize(self) -> None:
            calls.append("wait for the event")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("copies", calls))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("running", calls))
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "from_numpy", lambda array: Tensor(calls, current))
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: Tensor(calls, current)._called("room"))
    return calls


def test_a_batch_is_copied_beside_what_runs(calls: list[str]) -> None:
    tensors = transfer_for("cuda:1").to_device({"input_ids": np.zeros(2)})

    assert list(tensors) == ["input_ids"]
    assert calls == [
        "pin in copies",
        "copy to cuda:1, at once in copies",
        "running waits for copies",
        "kept for running",
    ]


def test_an_output_is_waited_for_after_the_next_batch_was_started(calls: list[str]) -> None:
    wait = Overlapped("cuda:0").to_host(Tensor(calls, ["running"]))  # type: ignore[arg-type]
    assert calls == ["room in running", "copy back, at once in running", "event in running"]

    assert wait() == "array"
    assert calls[3:] == ["wait for the event", "read"]


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_elsewhere_nothing_is_pinned(device: str) -> None:
    assert isinstance(transfer_for(device), Direct)


def test_on_a_cpu_nothing_is_copied() -> None:
    array = np.arange(3)
    transfer = transfer_for("cpu")

    tensor = transfer.to_device({"ids": array})["ids"]

    assert np.shares_memory(transfer.to_host(tensor)(), array)
