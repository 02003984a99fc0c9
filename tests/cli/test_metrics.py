"""infinity serve with several API processes on one port: /metrics speaks for all of them, whichever answers."""

import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.cli.conftest import PATIENCE, Serving

Start = Callable[..., Serving]

ANSWERED = 'infinity_http_requests_total{route="/v1/embeddings",status="200"}'
TIMED = 'infinity_http_request_duration_seconds_count{route="/v1/embeddings",status="200"}'


def metrics(serving: Serving) -> dict[str, float]:
    with urllib.request.urlopen(f"{serving.url}/metrics", timeout=PATIENCE) as response:
        lines = [line for line in response.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def apis(serving: Serving) -> list[psutil.Process]:
    alive = [each for each in serving.family() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in alive if "infinity_pool.cli.api" in each.cmdline()]


def embed(serving: Serving, times: int) -> None:
    for length in range(1, times + 1):  # each on a connection of its own, so that both are asked
        assert serving.embed("x" * length)[0] == length


def test_all_say_the_same_and_go_on_counting_after_a_death(start: Start, tmp_path: Path) -> None:
    options = ("--model", "dummy", "--engine", "dummy", "--api-processes", "2")
    serving = start(Serving, *options, TMPDIR=str(tmp_path)).ready()
    serving.expect("listening on", times=2)
    embed(serving, 20)
    for _ in range(10):
        said = metrics(serving)
        assert (said[ANSWERED], said[TIMED]) == (20, 20)
        assert said['infinity_items_total{model="dummy",task="embed"}'] == 20
        assert said['infinity_workers{model="dummy",state="ready"}'] == 1
        assert said["infinity_http_requests_in_flight"] == 1
        assert said["infinity_jobs_awaited"] == 0
        assert "process_resident_memory_bytes" not in said

    apis(serving)[0].kill()
    serving.expect("listening on", times=3)
    embed(serving, 10)
    for _ in range(10):
        said = metrics(serving)
        assert (said[ANSWERED], said["infinity_http_requests_in_flight"]) == (30, 1)
    assert len(list(tmp_path.glob("infinity-metrics-*/*.db"))) == 2 * 3  # of each place, whoever has it

    serving.signal()
    assert serving.wait() == 0
    assert list(tmp_path.glob("infinity-metrics-*")) == []


def test_one_speaks_of_itself(dummy: Serving) -> None:
    assert metrics(dummy)["process_resident_memory_bytes"] > 0
