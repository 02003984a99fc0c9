"""How far a backfill is: one small file beside the output, which is replaced whole with each commit."""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.cli.backfill.appended import Appended, Parts, is_local, put_in_place

VERSION = 1

_BESIDE = ("state.json", "failures.jsonl", "ids.jsonl", "lock")


@dataclass
class State:
    """
    What is committed: of so many `rows` of the input, so many have `done` outputs and the others `failed`.

    `asked` is the input and all options that the output depends on, `digest` stands for the rows, and `output` is what
    the writer must know to go on.
    """

    asked: dict[str, Any]
    version: int = VERSION
    rows: int = 0
    digest: str = ""
    done: int = 0
    failed: int = 0
    tokens: int = 0
    failures: int = 0
    """Bytes of the file of failures."""
    fingerprint: str = ""
    """Of the model's vectors, which another one's must not follow."""
    output: dict[str, Any] = field(default_factory=dict)
    finished: bool = False


def beside(out: Path, ending: str) -> Path:
    """Give the path of a file beside the output."""
    return out.with_name(f"{out.name}.{ending}")


def check_apart(inputs: Sequence[str], out: Path) -> None:
    """Refuse to read what is written, and might be removed; raises InvalidInput."""
    if not is_local(out):
        return
    whole = out.resolve()
    ours = {whole, *(beside(whole, ending) for ending in _BESIDE)}
    for name in inputs:
        path = Path(name.removeprefix("file://")).resolve()
        if ours & {path, *path.parents}:
            raise InvalidInput(f"{name} would be read and written, as of the output {out}", param="out")


def load(out: Path, asked: dict[str, Any]) -> State:
    """
    Read how far an earlier run came, or begin.

    Raises InvalidInput, saying what differs, if there is output already and something else was asked for.
    """
    try:
        found = orjson.loads(beside(out, "state.json").read_bytes())
    except FileNotFoundError:
        if out.exists() or beside(out, "failures.jsonl").exists():
            raise InvalidInput(f"{out} is there, and of no backfill; --restart replaces it", param="out") from None
        return State(asked)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{beside(out, 'state.json')} cannot be read ({error}); --restart begins anew") from error
    if found.get("version") != VERSION:
        raise InvalidInput(f"{out} was begun by another version of this program; --restart begins anew", param="out")
    differs = list(_differences(found["asked"], asked))
    if differs and not found["done"]:
        return State(asked)  # nothing was done: it was a slip, and this is what was meant
    if differs:
        told = "; ".join(differs)
        raise InvalidInput(f"{out} was begun otherwise: {told}; --restart begins anew", param="out")
    return State(**found)


def save(out: Path, state: State) -> None:
    """Make a state the one that the next run finds."""
    with put_in_place(beside(out, "state.json")) as file:
        file.write(orjson.dumps(asdict(state), option=orjson.OPT_INDENT_2))


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep others of this machine off an output on it meanwhile; raises InvalidInput if another run is at it."""
    if not is_local(out):
        yield
        return
    path = beside(out, "lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another run is writing {out}", param="out") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def failures_of(out: Path, size: int) -> Appended | Parts:
    """Open what failures are written to, cut back to a size."""
    path = beside(out, "failures.jsonl")
    return Appended(path, size) if is_local(out) else Parts(path, size)


def remove_failures(out: Path) -> None:
    """Remove what an earlier run has left of failures."""
    path = beside(out, "failures.jsonl")
    if is_local(out):
        path.unlink(missing_ok=True)
    else:
        for file in path.glob("*.jsonl"):
            file.unlink()


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"{name} was {_shown(before.get(name))} and is {_shown(now.get(name))}"


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}…"
