"""The supervisor, with real child processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infinity_pool.workers.supervision import supervise
from infinity_pool.workers.supervision.lifeline import Lifeline
from infinity_pool.workers.supervision.supervise import (
    EXIT_ABSENT,
    EXIT_REFUSED,
    Child,
    Refused,
    Supervisor,
    describe,
    restart_delay,
)

STARTED = """
import os, signal, sys, time
with open(sys.argv[1], "a") as file:
    print(os.getpid(), os.environ["INFINITY_WORKER_ID"], time.monotonic(), file=file, flush=True)
"""
POLITE = STARTED + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(60)"
STUBBORN = STARTED + "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    lifeline = Lifeline()
    yield lifeline
    lifeline.close()


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """The file in which each child writes its pid and id when it starts."""
    return tmp_path / "starts"


def child(program: str, *arguments: object, name: str = "child") -> Child:
    return Child(name, [sys.executable, "-c", program, *map(str, arguments)])


def lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_killed_child_is_started_again_under_a_new_id(lifeline: Lifeline, starts: Path) -> None:
    gone: list[str] = []

    async def note(worker_id: str) -> None:
        gone.append(worker_id)

    kept = Child("child", [sys.executable, "-c", POLITE, str(starts)], gone=note)
    async with Supervisor([kept], lifeline, patience=5):
        await until(lambda: len(lines(starts)) == 1)
        os.kill(int(lines(starts)[0][0]), signal.SIGKILL)
        await until(lambda: len(lines(starts)) == 2)
        assert gone == [lines(starts)[0][1]]

    (first, first_id, _), (second, second_id, _) = lines(starts)
    assert first != second
    assert first_id != second_id
    assert gone == [first_id, second_id]
    assert not is_alive(int(second))


async def test_a_child_that_keeps_failing_is_started_more_and_more_slowly(lifeline: Lifeline, starts: Path) -> None:
    async with Supervisor([child(STARTED + "sys.exit(3)", starts)], lifeline, patience=5):
        await until(lambda: len(lines(starts)) == 4)
    times = [float(started) for _, _, started in lines(starts)]
    assert times[2] - times[1] > 0.45
    assert times[3] - times[2] > 0.95


def test_delays_double_up_to_a_limit() -> None:
    assert [restart_delay(failures) for failures in range(6)] == [0, 0.5, 1, 2, 4, 8]
    assert restart_delay(1000) == 30


async def test_a_child_that_refuses_to_run_is_not_started_again(lifeline: Lifeline, starts: Path) -> None:
    children = [child(STARTED + f"sys.exit({EXIT_REFUSED})", starts, name="bad"), child(POLITE, starts, name="good")]
    async with Supervisor(children, lifeline, patience=5) as supervisor:
        with pytest.raises(Refused, match="bad"):
            await supervisor.wait()
    assert sum("bad" in worker_id for _, worker_id, _ in lines(starts)) == 1


async def test_what_cannot_be_had_at_the_start_is_tried_a_few_times(
    lifeline: Lifeline, starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_FIRST_DELAY", 0.01)
    async with Supervisor([child(STARTED + f"sys.exit({EXIT_ABSENT})", starts)], lifeline, patience=5) as supervisor:
        with pytest.raises(Refused, match="child"):
            await supervisor.wait()
    assert len(lines(starts)) == 5


async def test_what_was_there_once_is_waited_for(
    lifeline: Lifeline, starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_FIRST_DELAY", 0.01)
    program = STARTED + f"sys.exit(1 if os.environ['INFINITY_WORKER_ID'].endswith('-1') else {EXIT_ABSENT})"
    async with Supervisor([child(program, starts)], lifeline, patience=5):
        await until(lambda: len(lines(starts)) == 8)


async def test_once_means_once(lifeline: Lifeline, starts: Path) -> None:
    async with Supervisor([child(STARTED, starts)], lifeline, patience=5, once=True) as supervisor:
        await supervisor.wait()
    assert len(lines(starts)) == 1

    async with Supervisor([child(STARTED + "sys.exit(1)", starts)], lifeline, patience=5, once=True) as supervisor:
        with pytest.raises(Refused):
            await supervisor.wait()


async def test_children_that_do_not_stop_in_time_are_killed(lifeline: Lifeline, starts: Path) -> None:
    children = [child(STUBBORN, starts, name="stubborn"), child(POLITE, starts, name="polite")]
    async with Supervisor(children, lifeline, patience=0.5):
        await until(lambda: len(lines(starts)) == 2)
        began = time.monotonic()
    assert 0.4 < time.monotonic() - began < 3
    assert not any(is_alive(int(pid)) for pid, *_ in lines(starts))


async def test_a_child_that_is_ended_takes_along_what_it_started(
    lifeline: Lifeline, starts: Path, tmp_path: Path
) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    parent = Child("pool", [sys.executable, str(program), str(starts)])
    async with Supervisor([parent], lifeline, patience=5) as supervisor:
        await until(lambda: lines(starts))
        grandchild = int(lines(starts)[0][0])
        os.kill(grandchild, signal.SIGSTOP)  # it cannot follow its parent by itself
        first = supervisor.worker_ids["pool"]
        supervisor.end(first)
        await until(lambda: len(lines(starts)) == 2)
        supervisor.end(first)  # of a start that is over: nothing happens
        supervisor.end("")
        assert supervisor.worker_ids["pool"] != first
        assert is_alive(int(lines(starts)[1][0]))
        await until(lambda: not is_alive(grandchild))
    await until(lambda: not is_alive(int(lines(starts)[1][0])))


async def test_what_a_dead_child_left_stopped_goes_too(lifeline: Lifeline, starts: Path, tmp_path: Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    async with Supervisor([Child("pool", [sys.executable, str(program), str(starts)])], lifeline, patience=5):
        await until(lambda: lines(starts))
        grandchild = psutil.Process(int(lines(starts)[0][0]))
        parent = grandchild.ppid()
        grandchild.suspend()
        os.kill(parent, signal.SIGKILL)
        await until(lambda: not is_alive(grandchild.pid))


async def test_kill_ends_the_wait_at_once(lifeline: Lifeline, starts: Path) -> None:
    async with Supervisor([child(STUBBORN, starts)], lifeline, patience=30) as supervisor:
        await until(lambda: lines(starts))
        asyncio.get_running_loop().call_later(0.2, supervisor.kill)
        began = time.monotonic()
        await supervisor.stop()
        assert time.monotonic() - began < 3


async def test_a_command_that_does_not_exist_is_tried_again_and_not_fatal(
    lifeline: Lifeline, caplog: pytest.LogCaptureFixture
) -> None:
    async with Supervisor([Child("ghost", ["/does/not/exist"])], lifeline, patience=1):
        await until(lambda: caplog.text.count("ghost cannot be started") >= 2)


def test_an_end_is_described() -> None:
    assert describe(-signal.SIGKILL) == "signal SIGKILL"
    assert describe(3) == "exit code 3"


PARENT = """
import asyncio, sys
from infinity_pool.workers.supervision.lifeline import Lifeline
from infinity_pool.workers.supervision.supervise import Child, Supervisor
async def main():
    async with Supervisor([Child("child", [sys.executable, "-c", sys.argv[1], sys.argv[2]])], Lifeline(), patience=5):
        await asyncio.sleep(60)
asyncio.run(main())
"""
FOLLOWER = "from infinity_pool.workers.supervision.lifeline import follow_parent; follow_parent()" + STUBBORN
POOL = """
import multiprocessing, sys, time
from infinity_pool.workers.supervision.lifeline import follow
def work(path):
    import os
    follow(multiprocessing.parent_process().sentinel)
    with open(path, "a") as file:
        print(os.getpid(), "-", file=file, flush=True)
    time.sleep(60)
if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work, args=(sys.argv[1],), daemon=True).start()
    time.sleep(60)
"""


async def test_children_end_with_a_parent_that_was_killed(starts: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, FOLLOWER, str(starts)])
    try:
        await until(lambda: lines(starts))
    finally:
        parent.kill()
        parent.wait()
    await until(lambda: not is_alive(int(lines(starts)[0][0])), 5)


async def test_a_multiprocessing_child_follows_its_parent(starts: Path, tmp_path: Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    parent = subprocess.Popen([sys.executable, str(program), str(starts)])
    try:
        await until(lambda: lines(starts))
    finally:
        parent.kill()
        parent.wait()
    await until(lambda: not is_alive(int(lines(starts)[0][0])), 5)


WITH_TRACKER = (
    STARTED
    + """
import subprocess
code = "import pathlib, sys, time; sys.stdin.read(); time.sleep(0.2); pathlib.Path(sys.argv[1]).touch()"
tracker = subprocess.Popen([sys.executable, "-c", code, sys.argv[2]], stdin=subprocess.PIPE)
stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
os.kill(stopped.pid, signal.SIGSTOP)
print(stopped.pid, file=open(sys.argv[3], "w"), flush=True)
time.sleep(60)
"""
)


@pytest.mark.parametrize("ended_by_us", [True, False])
async def test_what_a_dead_child_has_started_may_tidy_up_and_then_ends(
    lifeline: Lifeline, starts: Path, tmp_path: Path, ended_by_us: bool
) -> None:
    tidied, stopped = tmp_path / "tidied", tmp_path / "stopped"
    async with Supervisor([child(WITH_TRACKER, starts, tidied, stopped)], lifeline, patience=5) as supervisor:
        await until(lambda: stopped.exists() and stopped.read_text())
        pid = int(stopped.read_text())
        if ended_by_us:
            supervisor.end(supervisor.worker_ids["child"])
        else:
            os.kill(int(lines(starts)[0][0]), signal.SIGKILL)
        await until(tidied.exists)
        await until(lambda: not is_alive(pid))
