"""Rows that cannot be run are told by line and stop nobody, and equal ones are run once."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from infinity_pool.broker.errors import InvalidInput, ModelNotFound, Unprocessable
from infinity_pool.cli.backfill.formats.parquet import read
from infinity_pool.cli.backfill.rows import text_of, texts_of
from tests.cli.backfill.conftest import Run

LARGE = 10_000_000
LINES = [
    b'{"id": "a", "text": "good"}',
    b'{"id": "b"}',
    b'{"id": "c", "text": null}',
    b'{"id": "d", "text": "\xff\xfe"}',
    b'{"id": "e", "text": "%s"}' % (b"x" * LARGE),
    b'{"id": "a", "text": "an id that was"}',
    b'{"id": "g", "text": ',
    b'{"id": "h", "text": " "}',
    b"",
    b'["no object"]',
    b'{"text": "no id"}',
    b'{"id": 1.5, "text": "no whole number"}',
    b'{"id": "m", "text": 7}',
    b'{"id": 14, "text": "good"}',
]
REASONS = {
    2: "there is no field 'text'",
    3: "text is no text but null",
    4: "the line is not UTF-8",
    5: "text has 10,000,000 bytes, over the limit of 8,388,608",
    6: "an earlier row has the id 'a'",
    7: "the line is not JSON",
    8: "text is empty",
    9: "the line is empty",
    10: "the line is no JSON object",
    11: "there is no field 'id'",
    12: "id is no text but a number",
    13: "text is no text but a number",
}


def failures(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_bad_rows_are_told_by_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(LINES))

    code = await run("embed", "in.jsonl", out="out.jsonl", id_field="id")

    told = failures(tmp_path / "out.jsonl.failures.jsonl")
    assert code == 3
    assert [row["line"] for row in told] == [*REASONS]
    assert all(row["reason"].startswith(reason) for row, reason in zip(told, REASONS.values(), strict=True))
    assert [row["id"] for row in told][:3] == ["b", "c", 3]
    assert [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["a", 14]


async def test_bad_rows_of_csv(run: Run, tmp_path: Path) -> None:
    rows = [b"id,text", b"a,good", b"b", b"c,\xff", b"d,one,more", b"", b'e,"two\nlines"', b"f,", b"g,\x00", b"h,good"]
    (tmp_path / "in.csv").write_bytes(b"\n".join(rows))

    assert await run("embed", "in.csv", out="out.npy", id_field="id") == 3

    told = {row["line"]: row["reason"] for row in failures(tmp_path / "out.npy.failures.jsonl")}
    assert told == {
        3: "there is no field 'text', but 'id'",
        4: "text is not UTF-8",
        5: "the row has 3 values for 2 names",
        6: "the row is empty",
        9: "text is empty",
    }
    assert np.load(tmp_path / "out.npy")[:, 0].tolist() == [4, 9, 1, 4]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["id,text", "a,one", 'b,"two', "c,three", ""], "the quote that begins in line 3 is never closed"),
        (["id,text", '"a\nb","two', "c,three"], "the quote that begins in line 3 is never closed"),
        (["text,id,text", "a,1,b"], "2 of its columns are called 'text'"),
        (["id,text", "a,one", "b," + '"' + "x" * LARGE, "y" * LARGE, "c,three"], ""),
    ],
)
async def test_csv_whose_rows_cannot_be_told_apart(lines: list[str], told: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("\n".join(lines))
    if told:
        with pytest.raises(InvalidInput, match=rf"in\.csv cannot be read as csv: {told}"):
            await run("embed", "in.csv", out="out.npy")
        return
    assert await run("embed", "in.csv", out="out.npy") == 3
    [failed] = failures(tmp_path / "out.npy.failures.jsonl")
    assert "lines 3 to 4 are one row, as if a quote were left open" in failed["reason"]


async def test_parquet_with_a_name_twice(run: Run, tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"])
    parquet.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(InvalidInput, match="2 of its columns are called 'text'"):
        await run("embed", "in.parquet", out="out.npy")


async def test_bad_rows_of_parquet(run: Run, tmp_path: Path) -> None:
    texts = pa.array([b"good", None, b"\xff", b"", b"good"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table({"text": texts}), tmp_path / "in.parquet")

    assert await run("embed", "in.parquet", out="out.npy") == 3

    told = {row["line"]: row["reason"] for row in failures(tmp_path / "out.npy.failures.jsonl")}
    assert told == {2: "text is no text but null", 3: "text is not UTF-8", 4: "text is empty"}
    assert (tmp_path / "out.npy.ids.jsonl").read_text() == "0\n4\n"


async def test_bad_lists_of_parquet(run: Run, tmp_path: Path) -> None:
    lists = pa.array([[b"a", b"\xff"], None, [b"a", b"b"]], pa.list_(pa.binary()))
    texts = pa.ListArray.from_arrays(lists.offsets, lists.values.view(pa.string()), mask=lists.is_null())
    bytes_alone = pa.array([b"a", b"b", b"c"], pa.binary())
    parquet.write_table(pa.table({"query": ["q"] * 3, "texts": texts, "bytes": bytes_alone}), tmp_path / "in.parquet")

    with (tmp_path / "in.parquet").open("rb") as file:
        lines = [*read(file, ["texts", "bytes"])]

    reasons = []
    for line in lines:
        with pytest.raises(Unprocessable) as raised:
            texts_of(line.record or {}, "texts")
            text_of(line.record or {}, "bytes")
        reasons.append(str(raised.value))
    assert reasons == [
        "texts[1] is not UTF-8",
        "texts is no list of texts but null",
        "bytes is no text but binary data",
    ]


async def test_a_field_that_no_row_has_is_a_mistake(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n' * 200)

    with pytest.raises(InvalidInput, match=r"none of the first 100 rows can be used: there is no field 'body'"):
        await run("embed", "in.jsonl", out="out.npy", field="body")
    (tmp_path / "in.csv").write_text("text;id\none;1\n")  # also where there are fewer
    with pytest.raises(InvalidInput, match=r"none of the 1 rows can be used: there is no field 'text', but 'text;id'"):
        await run("embed", "in.csv", out="out.npy")


@pytest.mark.parametrize("name", ["in.txt", "in.csv", "in.jsonl"])
async def test_text_of_two_bytes_a_letter_is_refused(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / name).write_text("text\none\ntwo\n", encoding="utf-16")
    with pytest.raises(InvalidInput, match=f"{name} cannot be read as .*: it is UTF-16; only UTF-8 is read"):
        await run("embed", name, out="out.npy")


async def test_what_concerns_all_is_told_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")

    with pytest.raises(InvalidInput, match="dimensions must be from 1 to 13"):
        await run("embed", "in.txt", out="out.npy", dimensions=99)
    with pytest.raises(ModelNotFound, match="absent"):
        await run("embed", "in.txt", out="out2.npy", model="absent")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ModelNotFound, match="absent"):
        await run("embed", "empty.txt", out="out2.npy", model="absent")
    with pytest.raises(InvalidInput, match="cannot rerank, only embed"):
        (tmp_path / "in.jsonl").write_text('{"query": "a", "document": "b"}\n')
        await run("rerank", "in.jsonl", out="out3.npy")


async def test_equal_texts_are_run_once(run: Run, items_run: Callable[[], int], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\nanother\n" * 1000)
    await asyncio.sleep(1.0)  # counts come with heartbeats
    before = items_run()

    await run("embed", "in.txt", out="out.npy", max_in_flight=2000)

    vectors = np.load(tmp_path / "out.npy")
    assert vectors[:, 0].tolist() == [3, 7] * 1000
    async with asyncio.timeout(10):
        while items_run() == before:  # it is told with the next heartbeat
            await asyncio.sleep(0.1)
    assert 2 <= items_run() - before < 100  # again where none of them was open for a moment
