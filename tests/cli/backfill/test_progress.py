import pytest

from infinity_pool.cli.backfill.progress import Lines, Speeds
from infinity_pool.cli.backfill.state import State


def test_how_far_how_fast_and_how_long() -> None:
    speeds = Speeds()
    speeds.note(State({}), 0.0, now=100.0)
    speeds.note(State({}, rows=2500, tokens=50_000, failed=2), 0.25, now=110.0)

    assert speeds.told() == "2,500 documents (25%), 250 items/s, 5,000 tokens/s, 0:00:30 left, 2 failed"


def test_of_a_pipe_nobody_knows_the_end() -> None:
    speeds = Speeds()
    speeds.note(State({}), None, now=0.0)
    speeds.note(State({}, rows=10), None, now=1.0)

    assert speeds.told() == "10 documents, 10 items/s, 0 tokens/s"


def test_speeds_are_of_late() -> None:
    speeds = Speeds()
    for second in range(100):
        speeds.note(State({}, rows=1000 + max(0, second - 60)), None, now=float(second))

    assert "1 items/s" in speeds.told()


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = Lines()
    for _ in range(25):
        now += 1.0
        lines.show(State({}, rows=int(now)), None)

    assert len(capsys.readouterr().err.splitlines()) == 2
