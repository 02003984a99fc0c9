"""The signals that end a process in order."""

import asyncio
import signal
from collections.abc import Callable

_ENDS = (signal.SIGINT, signal.SIGTERM)


def on_end(first: Callable[[], None], again: Callable[[], None]) -> None:
    """
    Call `first` at the first Ctrl-C, SIGTERM or SIGHUP, and `again` at each Ctrl-C or SIGTERM after it.

    A terminal that closes may send SIGHUP twice, by its shell and by the kernel, and means no hurry; one that is
    ignored, as under nohup, stays so.
    """
    told = False

    def end() -> None:
        nonlocal told
        if told:
            again()
        else:
            hang_up()

    def hang_up() -> None:
        nonlocal told
        if not told:
            told = True
            first()

    loop = asyncio.get_running_loop()
    for each in _ENDS:
        loop.add_signal_handler(each, end)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, hang_up)
