"""Every format that is read, into every one that is written; and what else may be an input."""

import csv
import gzip
import importlib
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from upath import UPath

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.cli.backfill.formats import FORMATS
from infinity_pool.cli.backfill.formats import READ as READ_FORMATS
from tests.cli.backfill.conftest import WIDTH, Run

TEXTS = ["a", "two words", "ünï", 'with "quotes", and a comma', "x" * 700] * 60
IDS = [f"id-{n}" for n in range(len(TEXTS))]


def write_jsonl(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(json.dumps({"id": f"id-{n}", "text": text}) + "\n" for n, text in enumerate(texts)))


def write_csv(path: Path, texts: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["other", "text", "id"], *(["-", text, f"id-{n}"] for n, text in enumerate(texts))])


def write_txt(path: Path, texts: Sequence[str]) -> None:
    path.write_text("\n".join(texts), encoding="utf-8")


def write_parquet(path: Path, texts: Sequence[str]) -> None:
    columns = {"id": [f"id-{n}" for n in range(len(texts))], "text": [*texts], "other": [0.0] * len(texts)}
    parquet.write_table(pa.table(columns), path, row_group_size=100)


def read_jsonl(path: Path) -> tuple[list[Any], Any]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["id"] for row in rows], np.array([row["embedding"] for row in rows], np.float32)


def read_parquet(path: Path) -> tuple[list[Any], Any]:
    table = parquet.read_table(path)
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), WIDTH)
    return table["id"].to_pylist(), np.array(table["embedding"].to_pylist(), np.float32)


def read_npy(path: Path) -> tuple[list[Any], Any]:
    lines = path.with_name(f"{path.name}.ids.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], np.load(path)


WRITE: dict[str, Callable[[Path, Sequence[str]], None]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "txt": write_txt,
    "parquet": write_parquet,
}
READ = {"jsonl": read_jsonl, "parquet": read_parquet, "npy": read_npy}


@pytest.mark.parametrize(("source", "target"), [*itertools.product(WRITE, READ)])
async def test_every_format_into_every_format(source: str, target: str, run: Run, tmp_path: Path) -> None:
    WRITE[source](tmp_path / f"in.{source}", TEXTS)
    id_field = "" if source == "txt" else "id"

    code = await run("embed", f"in.{source}", out=f"out.{target}", id_field=id_field, shard_rows=70)

    ids, vectors = READ[target](tmp_path / f"out.{target}")
    assert code == 0
    assert ids == (IDS if id_field else [*range(len(TEXTS))])
    assert vectors.tolist() == [[len(text)] * WIDTH for text in TEXTS]
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("out")} == {
        *(f"out.{target}", f"out.{target}.state.json"),
        *([f"out.{target}.ids.jsonl"] if target == "npy" else []),
    }


async def test_shards_are_of_one_size_but_the_last(run: Run, tmp_path: Path) -> None:
    write_txt(tmp_path / "in.txt", TEXTS)

    await run("embed", "in.txt", out="out.parquet", shard_rows=128, commit_seconds=0.0)

    files = sorted((tmp_path / "out.parquet").iterdir())
    assert [parquet.read_metadata(file).num_rows for file in files] == [128, 128, 44]
    assert parquet.read_metadata(files[0]).row_group(0).column(0).compression == "ZSTD"


async def test_patterns_packed_files_and_several_inputs(run: Run, tmp_path: Path) -> None:
    for name, texts in (("b.txt", TEXTS[100:200]), ("a.txt", TEXTS[:100]), ("c.txt", TEXTS[200:])):
        write_txt(tmp_path / name, texts)
    packed = tmp_path / "c.txt.gz"
    packed.write_bytes(gzip.compress((tmp_path / "c.txt").read_bytes()))

    await run("embed", "[ab].txt", "c.txt.gz", out="out.npy")

    assert np.load(tmp_path / "out.npy")[:, 0].tolist() == [len(text) for text in TEXTS]


async def test_a_url(run: Run, tmp_path: Path) -> None:
    write_txt(tmp_path / "in.txt", TEXTS)

    await run("embed", f"file://{tmp_path}/*.txt", out="out.npy", dimensions=2, embedding_dtype="float16")

    vectors = np.load(tmp_path / "out.npy")
    assert (vectors.shape, vectors.dtype) == ((len(TEXTS), 2), np.float16)


async def test_shards_to_a_url(run: Run, tmp_path: Path) -> None:
    """Resumed as elsewhere: what a run that was killed has left behind is not taken for more than it is."""
    write_txt(tmp_path / "in.txt", [*TEXTS[:100], "", *TEXTS[100:]])
    out = UPath(f"memory://{tmp_path.name}/out.parquet")
    with pytest.raises(InvalidInput, match="only Parquet is written to URLs"):
        await run("embed", "in.txt", out="memory://x/out.npy")

    assert await run("embed", "in.txt", out=str(out), shard_rows=128, commit_seconds=0.0) == 3
    state, shards = out.with_name("out.parquet.state.json"), sorted(out.glob("*"))
    contents = [shard.read_bytes() for shard in shards]
    [failed] = out.with_name("out.parquet.failures.jsonl").glob("*")
    begun = json.loads(state.read_bytes()) | {"rows": 0, "digest": "", "done": 0, "failed": 0, "failures": 0}
    state.write_bytes(json.dumps(begun | {"output": {}, "finished": False}).encode())

    assert await run("embed", "in.txt", out=str(out), shard_rows=128) == 3
    assert [shard.read_bytes() for shard in sorted(out.glob("*"))] == contents
    assert [path.name for path in shards] == [f"part-{n:06d}.parquet" for n in range(3)]
    assert json.loads(failed.read_bytes())["line"] == 101
    assert json.loads(state.read_bytes())["done"] == len(TEXTS)


def test_those_that_are_read() -> None:
    modules = {name: importlib.import_module(f"infinity_pool.cli.backfill.formats.{name}") for name in FORMATS}
    assert [name for name, module in modules.items() if hasattr(module, "read")] == READ_FORMATS


async def test_a_name_that_is_no_utf_8(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in\udcff.txt").write_text("a\n\nb")
    assert await run("embed", "in\udcff.txt", out="out.jsonl") == 3
    assert json.loads((tmp_path / "out.jsonl.failures.jsonl").read_text())["file"].endswith("in\\xff.txt")


async def test_an_empty_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()

    for target in READ:
        assert await run("embed", "in.jsonl", out=f"out.{target}") == 0

    assert np.load(tmp_path / "out.npy").shape == (0, 0)
    assert (tmp_path / "out.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("name", "out", "options", "told"),
    [
        ("absent.txt", "out.npy", {}, "there is no file"),
        ("*.absent", "out.npy", {}, "there is no file"),
        (".", "out.npy", {}, "is a folder: name its files, as '.*/\\*'"),
        ("in.doc", "out.npy", {}, "--format must say what"),
        ("in.txt", "out.doc", {}, "--out ends in"),
        ("in.txt", "out.csv", {}, "--out ends in"),
        ("in.npy", "out.jsonl", {}, r"in\.npy is npy, which is only written"),
        ("in\udcff.doc", "out.npy", {}, r"what .*in\\xff\.doc is: one of csv, jsonl, parquet, txt"),
        ("in.txt", "out.npy", {"id_field": "id"}, "has no fields"),
        ("in.txt", "out.npy", {"format": "jsonl"}, ""),
    ],
)
async def test_what_will_not_do(
    name: str, out: str, options: dict[str, str], told: str, run: Run, tmp_path: Path
) -> None:
    for each in ("in.txt", "in.doc", "in.npy", "in\udcff.doc"):
        write_txt(tmp_path / each, TEXTS[:5])
    if not told:
        assert await run("embed", name, out=out, **options) == 3
        return
    with pytest.raises(InvalidInput, match=told):
        await run("embed", name, out=out, **options)
