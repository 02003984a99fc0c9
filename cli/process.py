"""How every process of the project begins and ends."""

import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import click
import uvloop

from infinity_pool.broker.errors import Forbidden, InfinityError, InvalidInput, Unauthorized
from infinity_pool.broker.settings import CommonSettings
from infinity_pool.cli.logs import start_logging

EXIT_INTERRUPTED = 130
"""The exit code of a process that was told twice to stop, and did so at once."""

_STDERR = 2

_log = logging.getLogger(__name__)


def run_process(settings: CommonSettings, main: Callable[[], Coroutine[Any, Any, int]], *, refused: int = 1) -> int:
    """
    Run a process's main coroutine and give its exit code: `refused` for input, or a key, that will never do.

    An error that we foresaw is one line on stderr; any other is one in the log, with its traceback at level debug.
    """
    _open_streams()
    start_logging(settings.log_level, settings.log_format)
    try:
        return uvloop.run(main())
    except InfinityError as error:
        _log.debug("ended by", exc_info=error)
        click.echo(f"error: {error}", err=True)
        return refused if isinstance(error, InvalidInput | Unauthorized | Forbidden) else 1
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the process ends here, and its log should say why in a line
        for cause in _causes(error):
            if isinstance(cause, InfinityError):
                _log.critical("%s", cause)
            else:
                _log.critical("ended by an error that nobody foresaw", exc_info=cause)
        return 1


def _open_streams() -> None:
    """Put something in place of standard streams that are closed, or other files would be taken for them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - for as long as the process lives


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Give what went wrong in the tasks of a group, and in theirs."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error
