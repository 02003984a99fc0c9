"""How many lines are open at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from infinity_pool.api.batches.answering import Answered
from infinity_pool.api.batches.storage import Line
from infinity_pool.api.batches.window import Window


class Slow:
    """Answers when it is told to, with so many bytes for one."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.ratio = 1
        self.may = asyncio.Event()

    async def answer(self, data: bytes) -> Answered:
        self.begun.append(data)
        await self.may.wait()
        if data == b"broken":
            raise ValueError("broken")
        return Answered(data * self.ratio, True)


@pytest.fixture
async def slow() -> Slow:
    return Slow()


@pytest.fixture
async def window(slow: Slow) -> AsyncIterator[Window]:
    window = Window(slow.answer)
    yield window
    await window.close()


async def first(window: Window) -> tuple[Line, Answered | None]:
    assert await window.wait(10)
    return window.take()


async def test_lines_are_taken_in_their_order(window: Window, slow: Slow) -> None:
    for number in range(256):
        assert not window.full
        window.add(Line(b"%d" % number, number))
    assert window.full
    assert not await window.wait(0.01)
    assert len(slow.begun) == 256
    slow.may.set()
    assert [(await first(window))[0].end for _ in range(256)] == list(range(256))
    assert len(window) == 0


async def test_large_answers_leave_room_for_few(window: Window, slow: Slow) -> None:
    slow.ratio = 2000
    slow.may.set()
    window.add(Line(b"x" * 1000, 0))
    assert await first(window)
    for _ in range(34):
        assert not window.full
        window.add(Line(b"x" * 1000, 0))
    assert window.full  # 34 * 2 MB


async def test_what_is_left_has_no_answer(window: Window, slow: Slow) -> None:
    window.add(Line(b"a", 1))
    await asyncio.sleep(0)
    window.leave()
    assert await first(window) == (Line(b"a", 1), None)


async def test_what_breaks_is_raised(window: Window, slow: Slow) -> None:
    slow.may.set()
    window.add(Line(b"broken", 1))
    with pytest.raises(ValueError, match="broken"):
        await first(window)
