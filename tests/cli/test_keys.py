"""infinity keys and infinity usage, as a person types them, on a real server."""

import asyncio
import getpass
import json
import platform
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infinity_pool.api.access.key_file import KeyFile
from infinity_pool.broker import keys
from infinity_pool.broker.callers import Caller, digest, read_caller
from infinity_pool.broker.connection import connect
from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.usage import KEPT_DAYS, Tally, today
from infinity_pool.cli import keys as keys_command
from infinity_pool.cli.main import command


@pytest.fixture
def url(server_url: str) -> Iterator[str]:
    asyncio.run(_empty(server_url))
    yield server_url
    asyncio.run(_empty(server_url))


async def _empty(url: str) -> None:
    async with connect(url) as redis:
        await redis.flushall()


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the logging of the test's own process as it is."""
    monkeypatch.setattr("infinity_pool.cli.process.start_logging", lambda level, form: None)


def infinity(url: str, *words: str) -> Result:
    return CliRunner().invoke(command, [*words, "--redis-url", url])


def listed(url: str, what: str = "list") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(infinity(url, "keys", what, "--json").stdout)
    return found


def test_a_key_from_its_first_day_to_its_last(url: str) -> None:
    options = ["--models", "a, b", "--tasks", "embed,rerank", "--lanes", "online", "--admin", "--weight", "2.5"]
    limits = {"requests-per-minute": 1, "tokens-per-minute": 2, "concurrent-items": 3}
    limits |= {"tokens-per-day": 4_000_000, "tokens-per-month": 10**12}
    added = infinity(url, "keys", "add", "team-a", *options, *(f"--{name}={most}" for name, most in limits.items()))
    assert added.exit_code == 0, added.output
    first = added.stdout.strip()
    assert (first[:3], len(first), first.count("\n")) == ("ip-", 46, 0)

    [told] = listed(url)
    assert told == {
        "hash": digest(first)[:8],
        "name": "team-a",
        "models": ["a", "b"],
        "tasks": ["embed", "rerank"],
        "lanes": ["online"],
        "admin": True,
        "weight": 2.5,
        **{name.replace("-", "_"): most for name, most in limits.items()},
    }

    second = infinity(url, "keys", "rotate", "team-a").stdout.strip()
    assert second != first
    assert listed(url) == [told | {"hash": digest(second)[:8]}]

    assert infinity(url, "keys", "revoke", "team-a").exit_code == 0
    assert listed(url) == []

    log = listed(url, "log")
    assert [(line["what"], line["name"]) for line in log] == [
        ("add", "team-a"),
        ("rotate", "team-a"),
        ("revoke", "team-a"),
    ]
    assert {line["who"] for line in log} == {f"{getpass.getuser()}@{platform.node()}"} == {keys_command.who()}
    assert json.loads(log[0]["about"])["tokens_per_day"] == 4_000_000
    assert digest(first) not in json.dumps(log)


def test_the_tables(url: str) -> None:
    assert infinity(url, "keys", "list").stdout.strip() == "keys: none"
    infinity(url, "keys", "add", "team-b", "--requests-per-minute", "1200")
    infinity(url, "keys", "add", "team-c", "--models", "minilm,reranker", "--lanes", "online", "--admin")
    shown = infinity(url, "keys", "list").stdout
    assert "keys: 2" in shown
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(" team-")] == ["team-b", "team-c"]
    assert all(words in shown for words in ("1,200 requests per minute", "models minilm, reranker"))
    shown = infinity(url, "keys", "log").stdout
    assert all(word in shown for word in ("add", "team-b", keys_command.who(), "1,200 requests"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["add", "no space"], "name: "),
        (["add", "-"], "name: "),
        (["add", "x" * 65], "name: "),
        (["add", "x", "--tasks", "sing"], "tasks: "),
        (["add", "x", "--lanes", "fast"], "lanes: "),
        (["add", "there"], "'there' is there already"),
        (["revoke", "absent"], "'absent' is not here"),
        (["rotate", "absent"], "'absent' is not here"),
    ],
)
def test_what_cannot_be_done(words: list[str], told: str, url: str) -> None:
    infinity(url, "keys", "add", "there")
    done = infinity(url, "keys", *words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert told in done.stderr
    assert len(listed(url, "log")) == 1


def test_a_record_that_another_hand_wrote_lets_nobody_in(url: str) -> None:
    infinity(url, "keys", "add", "good")

    async def spoil() -> None:
        async with connect(url) as redis:
            for name, record in (("bad", b"{}"), ("worse", b"0" * 64 + b"[1]"), ("worst", b"0" * 64 + b'{"admin": 7}')):
                await redis.hset(keys.callers(), name, record)

    asyncio.run(spoil())
    assert [key["name"] for key in listed(url)] == ["good"]


def test_usage(url: str) -> None:
    async def use() -> None:
        async with connect(url) as redis:
            tally = Tally()
            for key, model in (("a", "org/m"), ("a", "n"), ("b", "n"), ("", "n"), ("a", "n")):
                tally.add(key, model, "embed", requests=1, items=10, tokens=1000)
            await tally.flush(redis)
            tally.add("a", "n", "rerank", requests=1, items=1, tokens=1)
            await tally.flush(redis)
            await tally.flush(redis)
            assert 0 < await redis.ttl(keys.usage(today().isoformat())) <= KEPT_DAYS * 86_400
            old = (today() - timedelta(days=40)).isoformat()
            await redis.hset(keys.usage(old), "a n embed items", 5)

    asyncio.run(use())
    rows = {tuple(line.split()) for line in infinity(url, "usage").stdout.splitlines()}
    assert {("a", "4", "31", "3,001"), ("b", "1", "10", "1,000"), ("-", "1", "10", "1,000")} <= rows
    rows = {tuple(line.split()) for line in infinity(url, "usage", "--by", "model").stdout.splitlines()}
    assert {("n", "5", "41", "4,001"), ("org/m", "1", "10", "1,000")} <= rows
    since = (today() - timedelta(days=41)).isoformat()
    rows = {tuple(line.split()) for line in infinity(url, "usage", "--by", "day", "--since", since).stdout.splitlines()}
    assert ((today() - timedelta(days=40)).isoformat(), "0", "5", "0") in rows
    told = json.loads(infinity(url, "usage", "--json").stdout)
    assert {"key": "a", "model": "n", "task": "rerank", "requests": 1, "items": 1, "tokens": 1} in [
        {name: used[name] for name in used if name != "day"} for used in told
    ]
    assert "is no day" in infinity(url, "usage", "--since", "monday").stderr


def test_without_a_queue(tmp_path: Path) -> None:
    for words in (["keys", "list"], ["keys", "add", "x"], ["usage"]):
        done = infinity(f"unix://{tmp_path}/none.sock", *words)
        assert done.exit_code == 1
        assert done.stderr.startswith("error: the queue cannot be reached")


HASH = "a" * 64


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("keys.jsonl", f'{{"name": "a", "hash": "{HASH}", "models": ["m"], "tokens_per_day": 5}}\n\n'),
        ("keys.toml", f'[[keys]]\nname = "a"\nhash = "{HASH}"\nmodels = ["m"]\ntokens_per_day = 5\n'),
    ],
)
def test_files_of_keys(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert KeyFile(str(file)).callers == {HASH: Caller(name="a", models=("m",), tokens_per_day=5)}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1 is no JSON"),
        ("[]", "line 1: each key is an object with `name` and `hash`"),
        ('{"name": "a"}', "line 1: hash: "),
        ('{"name": "a", "hash": "ip-this-is-the-key"}', "hash: "),
        (f'{{"hash": "{HASH}"}}', "name: "),
        (f'{{"name": "a", "hash": "{HASH}", "colour": "red"}}', "colour: "),
        (f'{{"name": "a", "hash": "{HASH}", "tokens_per_day": -1}}', "tokens_per_day: "),
        (f'{{"name": "a", "hash": "{HASH}", "weight": 0}}', "weight: "),
        (f'{{"name": "a", "hash": "{HASH}"}}\n' * 2, "line 2: a is there twice"),
        (f'\n{{"name": "a b", "hash": "{HASH}"}}', "line 2: name: it is 1 to 64 letters"),
    ],
)
def test_files_that_cannot_be_used(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text(line)
    with pytest.raises(InvalidInput) as caught:
        KeyFile(str(file))
    assert caught.value.message.startswith(f"{file}: ")
    assert told in caught.value.message
    assert "this-is-the-key" not in caught.value.message


def test_what_is_told_of_a_key_is_what_it_is_made_of() -> None:
    caller = Caller(name="a", models=("m",), lanes=("bulk",), weight=3, tokens_per_day=7)
    assert caller.told() == {"models": ("m",), "lanes": ("bulk",), "weight": 3, "tokens_per_day": 7}
    assert read_caller({"name": "a", **caller.told()}) == caller
