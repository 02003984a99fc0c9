import logging
import os
import signal

import pytest

from infinity_pool.broker.errors import InvalidInput, WorkerFailed
from infinity_pool.workers.interface import Progress
from infinity_pool.workers.supervision.child import run_in_child
from tests.workers.conftest import ignore_progress


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Let the child import this module, to find the functions below."""
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath))


def double(number: int, progress: Progress) -> tuple[int, int]:
    progress("doubling", 0.5)
    logging.getLogger("infinity_pool.test").warning("a %s word", "last")
    return 2 * number, os.getpid()


def refuse(progress: Progress) -> None:
    raise InvalidInput("this cannot be", param="model")


def fail(progress: Progress) -> None:
    raise ZeroDivisionError("by zero")


def die(progress: Progress) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_result_progress_and_logs_come_back(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, float | None]] = []

    result, process = run_in_child(double, 21, progress=lambda stage, part: seen.append((stage, part)))

    assert result == 42
    assert process != os.getpid()
    assert seen == [("doubling", 0.5)]
    assert ("infinity_pool.test", logging.WARNING, "a last word") in caplog.record_tuples


def test_our_errors_come_back_as_they_are() -> None:
    with pytest.raises(InvalidInput, match="this cannot be") as caught:
        run_in_child(refuse, progress=ignore_progress)

    assert caught.value.param == "model"


def test_other_errors_are_named() -> None:
    with pytest.raises(WorkerFailed, match="fail: ZeroDivisionError: by zero"):
        run_in_child(fail, progress=ignore_progress)


def test_a_death_is_an_error() -> None:
    with pytest.raises(WorkerFailed, match="the process for die ended with exit code -9"):
        run_in_child(die, progress=ignore_progress)
