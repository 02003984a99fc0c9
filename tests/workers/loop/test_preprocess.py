import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from infinity_pool.broker.errors import InvalidInput, WorkerFailed
from infinity_pool.broker.messages import Lane
from infinity_pool.workers.families.dummy import Dummy
from infinity_pool.workers.interface import ModelFiles
from infinity_pool.workers.loop.preparing import Prepared, Request
from infinity_pool.workers.loop.preprocess import Preprocessor

FILES = ModelFiles(Path(), {}, "dummy")


def lengths_of(one: object) -> list[int]:
    assert isinstance(one, Prepared)
    return [int(length) for length in one.rows.lengths]


ENDS_AT_ONCE = """
import asyncio, os, sys
from infinity_pool.workers.supervision.lifeline import leave_without_remark
from tests.workers.loop.test_preprocess import FILES, Dummy, Preprocessor

async def main():
    leave_without_remark()
    await Preprocessor("dummy", FILES, 1, Dummy(FILES)).start()
    HOW

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture(params=[0, 1, 2])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[Preprocessor]:
    pool = Preprocessor("dummy", FILES, request.param, Dummy(FILES))
    await pool.start()
    yield pool
    pool.close()


def texts(*texts: object, **options: object) -> Request:
    return Request("embed", list(texts), options)


async def test_what_is_prepared_here_is_the_same(pool: Preprocessor) -> None:
    several = [texts("a" * n, "b" * (3 * n), "c") for n in range(1, 40)]

    whole, _ = await pool.prepare(several)
    alone = [await pool.prepare([one]) for one in several]

    lengths = [length for prepared, _ in alone for one in prepared for length in lengths_of(one)]
    assert lengths_of(whole[0]) == lengths


async def test_jobs_alike_are_prepared_in_one_call(pool: Preprocessor) -> None:
    prepared, errors = await pool.prepare([texts("a" * 8, "b" * 12), texts("c" * 40)])

    [one] = prepared
    assert lengths_of(one) == [2, 3, 10]
    assert one.jobs == [0, 1]
    assert errors == {}


async def test_jobs_with_other_options_are_prepared_apart(pool: Preprocessor) -> None:
    prepared, _ = await pool.prepare([texts("a"), texts("b", dimensions=2), texts("c")])

    assert [one.jobs for one in prepared] == [[0, 2], [1]]


async def test_a_bad_job_fails_alone(pool: Preprocessor) -> None:
    prepared, errors = await pool.prepare([texts("a"), texts(7), texts("c"), texts("d", dimensions=0)])

    assert sorted(place for one in prepared for place in one.jobs) == [0, 2]
    assert {place: type(error) for place, error in errors.items()} == {1: InvalidInput, 3: InvalidInput}


async def test_what_would_be_cut_is_refused_where_the_request_says_so(pool: Preprocessor) -> None:
    long = "a" * 4000
    requests = [texts("a", long), texts("a", long, truncate=False), texts("b", truncate=False), texts("c", truncate=1)]

    prepared, errors = await pool.prepare(requests)

    assert sorted(place for one in prepared for place in one.jobs) == [0, 2]
    assert (errors[1].message, errors[1].item) == ("is over the model's 512 tokens", 1)
    assert errors[3].param == "truncate"


async def test_online_jobs_are_prepared_before_bulk_that_came_first(pool: Preprocessor) -> None:
    order: list[str] = []

    async def work(name: str, lane: Lane) -> None:
        await pool.prepare([texts(*["a" * 8] * 33)], lane)
        order.append(name)

    await asyncio.gather(*(work(f"bulk {number}", "bulk") for number in range(4)), work("online", "online"))

    assert order.index("online") < order.index("bulk 3")  # there may be two processes, which begin with bulk


async def test_a_process_that_dies_is_replaced_and_nothing_is_lost() -> None:
    pool = Preprocessor("dummy", FILES, 1, Dummy(FILES))
    await pool.start()
    for _ in range(3):
        alive = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
        for child in alive:
            if "spawn_main" in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
        many = [texts(*["a" * 8] * 33)]  # too many to be prepared in passing
        outcomes = await asyncio.gather(*(pool.prepare(many) for _ in range(10)))
        assert [lengths_of(one) for prepared, _ in outcomes for one in prepared] == [[2] * 33] * 10
    pool.close()


class Killer:
    """An item that ends the process that it is unpacked in."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (1,)


async def test_who_kills_processes_fails_alone_and_is_told_of_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    pool = Preprocessor("dummy", FILES, 2, Dummy(FILES))
    await pool.start()
    killer, good = texts(Killer()), texts(*["a" * 8] * 33)
    outcomes = await asyncio.gather(*(pool.prepare([each]) for each in [good, killer, good, good, killer, good]))
    (prepared, errors), *_ = [await pool.prepare([good])]
    pool.close()

    assert [bool(failed) for _, failed in outcomes] == [False, True, False, False, True, False]
    assert all(isinstance(error, WorkerFailed) for _, failed in outcomes for error in failed.values())
    assert len(prepared) == 1 and not errors
    assert len([record for record in caplog.records if "died" in record.message]) <= 4  # two for each


@pytest.mark.parametrize("how", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("warnings", ["", "ignore::DeprecationWarning"])
def test_a_worker_that_ends_at_once_leaves_nothing_to_remark(how: str, warnings: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ENDS_AT_ONCE.replace("HOW", how))
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": warnings}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode != 0
    assert done.stderr == ""
