"""Runs one function in a process of its own, so that what it imports and allocates is gone afterwards."""

import logging
import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar, cast

from infinity_pool.broker.errors import InfinityError, WorkerFailed
from infinity_pool.workers.device.devices import share_cores
from infinity_pool.workers.interface import Progress
from infinity_pool.workers.supervision import lifeline

T = TypeVar("T")


class _ToParent(logging.Handler):
    def __init__(self, sender: Connection) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        self._sender.send(("log", (record.name, record.levelno, record.getMessage())))


def run_in_child(function: Callable[..., T], *args: Any, progress: Progress) -> T:
    """
    Run `function(*args, progress)` in a new process and give its result; the progress it reports is passed on.

    Raises the InfinityError it raised, and WorkerFailed if it failed otherwise or died.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(sender, function, args), name=function.__name__)  # may have its own
    child.start()
    sender.close()
    try:
        return cast(T, _receive(receiver, progress))
    except EOFError:
        child.join()
        raise WorkerFailed(f"the process for {function.__name__} ended with exit code {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
        receiver.close()


def _receive(receiver: Connection, progress: Progress) -> Any:
    while True:
        kind, value = receiver.recv()
        if kind == "result":
            return value
        if kind == "error":
            raise value
        if kind == "log":
            name, level, message = value
            logging.getLogger(name).log(level, "%s", message)
        else:
            progress(*value)


def _run(sender: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the parent too, which ends us
    parent = multiprocessing.parent_process()
    if parent is not None:
        lifeline.follow(parent.sentinel)
    share_cores()
    logging.basicConfig(level=logging.INFO, handlers=[_ToParent(sender)])

    def report(stage: str, part: float | None) -> None:
        sender.send(("progress", (stage, part)))

    try:
        sender.send(("result", function(*args, report)))
    except InfinityError as error:
        sender.send(("error", error))
    except Exception as error:  # noqa: BLE001 - whatever a model's files make a library raise is told to the parent
        logging.getLogger(__name__).debug("%s", traceback.format_exc())
        sender.send(("error", WorkerFailed(f"{function.__name__}: {type(error).__name__}: {error}")))
