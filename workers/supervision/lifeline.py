"""How child processes end with their parent, even one that was killed: a pipe whose other end only the parent holds."""

import multiprocessing
import os
import threading
from typing import NoReturn

_VARIABLE = "INFINITY_LIFELINE"
_NO_REMARK = "ignore::UserWarning:multiprocessing.resource_tracker"
_ORPHANED = 1  # the exit code; nobody is left to read it


class Lifeline:
    """The parent's side: hand `descriptor` and `environment` to each child, and keep this object."""

    def __init__(self) -> None:
        self.descriptor, self._held = os.pipe()  # neither is inherited unless passed on by name
        self.environment = {_VARIABLE: str(self.descriptor)}

    def close(self) -> None:
        """Let go: children that still run end at once."""
        os.close(self.descriptor)
        os.close(self._held)


def follow_parent() -> None:
    """End this process when the parent that gave it a lifeline is gone; to be called first thing in a child."""
    descriptor = os.environ.pop(_VARIABLE, None)  # it is ours alone, not our children's
    if descriptor is not None:
        follow(int(descriptor))


def follow(descriptor: int) -> None:
    """
    End this process when the other end of a pipe is closed.

    A process of multiprocessing passes `multiprocessing.parent_process().sentinel`.
    """
    threading.Thread(target=_wait, args=(descriptor,), name="lifeline", daemon=True).start()


def leave_without_remark() -> None:
    """
    Have multiprocessing's resource tracker say nothing when we end at once; to be called before anything is spawned.

    The semaphores of our pools have names, which a process that is killed, or ends by os._exit, does not remove. The
    tracker outlives us to do that, and would call it a leak.
    """
    said = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = f"{said},{_NO_REMARK}" if said else _NO_REMARK


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)  # nothing is ever written: it returns at the end of the pipe
    leave_at_once(_ORPHANED)


def leave_at_once(code: int) -> NoReturn:
    """End this process and those it has spawned, of which one that is stopped could not follow."""
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(code)
