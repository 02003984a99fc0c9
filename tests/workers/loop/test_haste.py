"""Whose batches are short, and for how long."""

import pytest

from infinity_pool.workers.loop import haste
from infinity_pool.workers.loop.haste import Haste


def test_nobody_hastens_at_first() -> None:
    assert Haste().lanes() == set()


def test_bulk_makes_way_for_online_and_a_lane_for_what_goes_ahead_in_it() -> None:
    hastened = Haste()
    hastened.came("bulk", ahead=False)
    assert hastened.lanes() == set()
    hastened.came("online", ahead=False)
    assert hastened.lanes() == {"bulk"}
    hastened.came("online", ahead=True)
    assert hastened.lanes() == {"bulk", "online"}


def test_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    hastened = Haste()
    hastened.came("bulk", ahead=True)
    monkeypatch.setattr(haste, "_LASTS", 0.0)
    assert hastened.lanes() == set()
