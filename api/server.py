"""Serves the application until it is told to stop."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from infinity_pool.api.app import make_app
from infinity_pool.api.keys import CLIENT, READINESS
from infinity_pool.api.network.connection import Runner
from infinity_pool.api.network.listening import check, listen, take_down
from infinity_pool.api.network.tls import Certificate, kept_up
from infinity_pool.api.settings import ApiSettings
from infinity_pool.broker.errors import Unavailable

Signals = asyncio.Queue[signal.Signals]

_LAST_WORDS = 1.0  # s, to write the errors of what took too long to finish
_STOP = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)


def _is_ours(record: logging.LogRecord) -> bool:
    """Pass over a caller's broken HTTP: it was answered, and anyone could fill the log with it."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


_http_logger = logging.getLogger(f"{__name__}.http")
_http_logger.addFilter(_is_ours)


async def serve(settings: ApiSettings, started: Callable[[str], None] | None = None) -> None:
    """
    Serve until SIGTERM or SIGINT, then finish what is in hand and return; a second signal leaves at once.

    From the first on, /ready says no. For `shutdown_delay` seconds requests are still taken, then, for `timeout`
    seconds, finished; what takes longer gets 503.
    `started` is called with the URL once all is open. Raises InvalidInput for what cannot be opened or used.
    """
    certificate = check(settings)
    app = make_app(settings)
    runner = Runner(
        app,
        access_log=None,
        handler_cancellation=True,
        logger=_http_logger,
        keepalive_timeout=settings.keep_alive,
        shutdown_timeout=settings.timeout + _LAST_WORDS,
    )
    async with kept_up(certificate):
        await _serve(runner, settings, certificate, started)


async def _serve(
    runner: Runner, settings: ApiSettings, certificate: Certificate | None, started: Callable[[str], None] | None
) -> None:
    app = runner.app
    with _stop_signals() as signals:
        try:
            urls = await listen(runner, settings, certificate, settings.reuse_port)
            for url in urls:
                logger.info("listening on %s", url)
            if started:
                started(urls[0])
            await signals.get()
            app[READINESS].stopping = True
            await _linger(signals, settings.shutdown_delay)
            take_down(settings)
            logger.info("stopping, after what is in hand")
            too_late = Unavailable("this replica is stopping", retry_after=1.0)
            asyncio.get_running_loop().call_later(settings.timeout, app[CLIENT].fail, too_late)
        finally:
            await _drain(runner, signals)


async def _linger(signals: Signals, seconds: float) -> None:
    """Serve on, so that those who ask whether we are ready send no more; one more signal ends it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            signals.put_nowait(await signals.get())


async def _drain(runner: web.AppRunner, signals: Signals) -> None:
    """Stop accepting and finish what is in hand, unless one more signal comes."""
    drained = asyncio.create_task(runner.cleanup())
    again = asyncio.create_task(signals.get())
    await asyncio.wait({drained, again}, return_when=asyncio.FIRST_COMPLETED)
    if not drained.done():
        logger.warning("stopping now, with requests in hand")
        drained.cancel()
        return
    again.cancel()
    drained.result()


@contextmanager
def _stop_signals() -> Iterator[Signals]:
    """Queue the signals that ask us to stop, in place of what they do by themselves."""
    loop, queue = asyncio.get_running_loop(), Signals()
    for each in _STOP:
        loop.add_signal_handler(each, queue.put_nowait, each)
    try:
        yield queue
    finally:
        for each in _STOP:
            loop.remove_signal_handler(each)
