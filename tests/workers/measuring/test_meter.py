"""What a worker measures of itself."""

import math

import numpy as np
import pytest

from infinity_pool.broker.consumer import Delivery
from infinity_pool.broker.messages import Job
from infinity_pool.workers.interface import Rows
from infinity_pool.workers.loop.batching import Budget
from infinity_pool.workers.loop.held import Held, Unit
from infinity_pool.workers.measuring.meter import Meter


def batch(*lengths: int) -> list[Unit]:
    """Make the units of one job's items, of so many tokens each."""
    job = Job("j", "embed", ["x"] * len(lengths), {}, "replies", "online", sum(lengths))
    held = Held(Delivery(b"1-1", "online", job, len(lengths), job.cost, 1, 0.0, None), job)
    rows = Rows(np.array(lengths, np.int32), {}, {}, np.zeros(len(lengths), bool))
    return [Unit(held, place, rows, place) for place in range(len(lengths))]


def test_the_speed_is_that_of_a_busy_device() -> None:
    meter = Meter("m", lambda: 0, 1000.0, Budget(100))
    for _ in range(50):
        meter.ran(batch(5), 0.05)  # 100 tokens/s: an idle worker, and one short text at a time
    assert meter.tokens_per_second == 1000.0

    for _ in range(100):
        meter.ran(batch(10, 20, 10), 0.08)  # 40 tokens and as much padding as makes 60
    assert math.isclose(meter.tokens_per_second, 500.0, rel_tol=0.01)
    assert (meter.items_done, meter.tokens_done) == (50 + 300, 250 + 4000)


def test_a_batch_that_never_ends_is_noticed_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now, held = 0.0, 1
    monkeypatch.setattr("infinity_pool.workers.measuring.meter.time.monotonic", lambda: now)
    meter = Meter("m", lambda: held)
    meter.woke()
    meter.starts(batch(5))
    now, held = 10.0, 0  # its caller has gone
    assert meter.stalled() == 10.0
    held = 1  # another comes
    meter.woke()
    assert meter.stalled() == 10.0
    meter.ended()
    held = 0
    assert meter.stalled() == 0.0
    meter.woke()
    held, now = 1, 11.0
    assert meter.stalled() == 1.0


@pytest.mark.parametrize(("packed", "padding"), [(False, 20.0), (True, 0.0)])
def test_a_packed_batch_has_no_padding(packed: bool, padding: float) -> None:
    meter = Meter("m", lambda: 0, 1000.0, Budget(100, packed=packed))

    meter.ran(batch(10, 20, 10), 0.08)

    assert f'infinity_worker_padding_tokens_total{{model="m"}} {padding}' in meter.exposition().decode()


def test_the_wait_for_a_turn_on_a_shared_device_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.0
    monkeypatch.setattr("infinity_pool.workers.measuring.meter.time.monotonic", lambda: now)
    meter = Meter("m", lambda: 1)
    meter.woke()
    now = 4.0
    meter.waits_for_turn()
    now = 104.0
    assert meter.stalled() == 3.0
    meter.has_turn()
    assert meter.stalled() == 3.0
    meter.starts(batch(5))
    now = 106.0
    assert meter.stalled() == 5.0
    meter.ended(2.0)
    assert meter.report()["device_seconds"] == 2.0
