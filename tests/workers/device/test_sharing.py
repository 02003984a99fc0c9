"""Workers that share a device: members of one line in one process, and real workers that are killed."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.workers.device.meeting import folder_of
from infinity_pool.workers.device.sharing import Sharing

Join = Callable[..., Sharing]
BATCH = 0.005  # s
PATIENCE = 10.0  # s, on a busy machine


@pytest.fixture
async def join(tmp_path: Path) -> AsyncIterator[Join]:
    with contextlib.ExitStack() as members:

        def begin(weight: float = 1.0, places: int = 1, patience: float = PATIENCE) -> Sharing:
            return members.enter_context(contextlib.closing(Sharing(tmp_path, weight, places, patience)))

        yield begin


async def work(member: Sharing, seconds: float, batch: float = BATCH) -> float:
    """Always have work; gives for how long one held the device."""
    end, held = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        await member.take()
        began = time.monotonic()
        await asyncio.sleep(batch)
        held += time.monotonic() - began
        member.give_back(more=True)
    return held


async def test_time_is_shared_by_weight_whatever_the_batches_take(join: Join) -> None:
    three, one = await asyncio.gather(work(join(3.0), 1.2, BATCH / 2), work(join(1.0), 1.2, 2 * BATCH))
    assert three / one == pytest.approx(3.0, rel=0.1)


async def test_who_is_alone_waits_for_nobody_and_who_was_idle_has_saved_nothing(join: Join) -> None:
    early, late = join(), join()
    alone = await work(early, 0.3)
    assert alone > 0.2
    before, after = await asyncio.gather(work(early, 0.5), work(late, 0.5))
    assert before / after == pytest.approx(1.0, rel=0.2)


async def test_so_many_have_a_turn_at_once(join: Join) -> None:
    first, second, third = (join(places=2) for _ in range(3))
    await first.take()
    await second.take()
    waiting = asyncio.create_task(third.take())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    second.give_back(more=False)
    await asyncio.wait_for(waiting, PATIENCE)


async def test_a_turn_that_nobody_passes_on_is_not_waited_for_for_ever(
    join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, first, second = join(), join(patience=0.2), join(patience=0.2)
    await stuck.take()
    assert min(await asyncio.gather(work(first, 0.6), work(second, 0.6))) > 0.1
    assert caplog.text.count("no turn on the device was passed on for 0.2 s") in (1, 2)
    stuck.give_back(more=False)


async def test_a_place_in_line_that_is_not_renewed_lapses(join: Join) -> None:
    silent, other = join(), join()
    await silent.take()
    silent.give_back(more=True)  # it says so, and does not come
    other._now = other._now._replace(begins=1.0)
    await asyncio.wait_for(other.take(), PATIENCE)


async def test_what_the_dead_have_left_is_removed(join: Join, tmp_path: Path) -> None:
    member = join()
    (tmp_path / "dead").touch()
    os.mkfifo(tmp_path / "dead.bell")
    await member.take()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("dead")]


def test_the_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert [folder_of(device).name for device in ("cpu", "cuda:1", "cuda:2")] == ["cpu", "cuda-GPU-b", "cuda-2"]
    folder_of("cpu").parent.chmod(0o755)
    with pytest.raises(InvalidInput, match="of this user alone"):
        folder_of("cpu")


HOLDER = """
import asyncio, pathlib, sys
from infinity_pool.workers.device.sharing import Sharing

async def hold():
    await Sharing(pathlib.Path(sys.argv[1]), 1.0, 1, 10.0).take()
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


async def test_a_turn_is_free_at_once_when_its_holder_is_killed(join: Join, tmp_path: Path) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout
    assert await holder.stdout.readline() == b"held\n"
    waiting = asyncio.create_task(join().take())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    holder.kill()
    killed = time.monotonic()
    await waiting
    assert time.monotonic() - killed < 1.0
    await holder.wait()
