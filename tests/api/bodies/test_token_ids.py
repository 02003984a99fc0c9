"""Token ids in a body, few or many, become arrays; whatever else is there is left alone."""

import json
from typing import Any

import numpy as np
import pytest

from infinity_pool.api.bodies.token_ids import ids_of, take_out
from infinity_pool.broker.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("[1,2,3]", [[1, 2, 3]]),
        ("[[1,2],[3]]", [[1, 2], [3]]),
        (" [ [ 1 , 2 ] ,\n[3] ] ", [[1, 2], [3]]),
        ("[[7]]", [[7]]),
    ],
)
async def test_ids_are_taken_out(text: str, rows: list[list[int]]) -> None:
    rest, ids = await take_out(b'{"model":"m","user":"say \\"input\\":[9]","input":' + text.encode() + b',"more":[1]}')

    assert ids is not None
    assert [row.tolist() for row in ids] == rows
    assert {row.dtype.name for row in ids} == {"int32"}
    assert json.loads(rest) == {"model": "m", "user": 'say "input":[9]', "input": True, "more": [1]}


async def test_ids_of_the_other_name() -> None:
    rest, ids = await take_out(b'{"inputs": [[1],[2]]}')

    assert ids is not None
    assert ([row.tolist() for row in ids], json.loads(rest)) == ([[1], [2]], {"inputs": True})
    with pytest.raises(InvalidInput, match="no tokens") as caught:
        await take_out(b'{"inputs": [[1],[]]}')
    assert (caught.value.param, caught.value.item) == ("inputs", 1)


@pytest.mark.parametrize(
    "body",
    [
        b'{"input":"a"}',
        b'{"input":["1",2]}',
        b'{"input":[1,"a"]}',
        b'{"input":[[1],[2]}',
        b'{"input":[[1],2]}',
        b'{"inputses":[1]}',
        b'{"other":["input",[1,2]]}',
        b"",
        b'"input":[',
    ],
)
async def test_what_is_none_is_left(body: bytes) -> None:
    assert await take_out(body) == (body, None)


@pytest.mark.parametrize(
    ("text", "item", "words"),
    [
        ("[[1],[-2]]", 1, "token id -2 is none"),
        ("[[1],[2147483648]]", 1, "token id 2147483648 is none"),
        ("[[1],[18446744073709551615]]", 1, "a token id that no model has"),
        ("[[1],[]]", 1, "has no tokens"),
        ("[[1],[2,,3]]", 1, "is no JSON"),
    ],
)
async def test_the_first_wrong_item_is_named(text: str, item: int, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        await take_out(b'{"input":' + text.encode() + b"}")

    assert (caught.value.param, caught.value.item) == ("input", item)


@pytest.mark.parametrize("bad", [[[1], [True]], [[1], ["a"]], [[1], [1.5]], [[1], [[2]]], [[1], 2], [[1], "a"]])
def test_what_is_no_token_id(bad: Any) -> None:
    with pytest.raises(InvalidInput, match=r"is not$") as caught:
        ids_of(bad)
    assert caught.value.item == 1


async def test_a_great_many() -> None:
    source = np.random.default_rng(0).integers(0, 100_000, (256, 512))

    _, ids = await take_out(json.dumps({"input": source.tolist()}).encode())

    np.testing.assert_array_equal(np.stack(ids or []), source)


async def test_one_long_row_is_read_in_pieces() -> None:
    source = np.random.default_rng(0).integers(0, 100_000, 50_000)

    _, ids = await take_out(json.dumps({"input": source.tolist()}).encode())
    assert ids is not None
    np.testing.assert_array_equal(ids[0], source)

    with pytest.raises(InvalidInput):
        await take_out(json.dumps({"input": source.tolist()}).replace("]", ",]").encode())
    assert await take_out(body := json.dumps({"input": [*source.tolist(), "a"]}).encode()) == (body, None)
