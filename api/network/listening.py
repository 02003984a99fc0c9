"""Opens what a replica listens on: its port, a Unix socket, and a port for those who run it."""

import gc
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from yarl import URL

from infinity_pool.api.network.cors import checked_origins
from infinity_pool.api.network.proxies import Proxies, root_of
from infinity_pool.api.network.tls import Certificate
from infinity_pool.api.settings import HttpSettings
from infinity_pool.broker.errors import InvalidInput

_BACKLOG = 2048  # connections the kernel holds for us while the loop is busy


def check(settings: HttpSettings) -> Certificate | None:
    """Give the certificate, if there is one; raises InvalidInput for what will never do."""
    if not (settings.tcp or settings.uds):
        raise InvalidInput("--no-tcp leaves nothing to listen on but --uds", param="tcp")
    if settings.admin_port and settings.admin_port == settings.port:
        raise InvalidInput("--admin-port must differ from --port", param="admin_port")
    if settings.tls_key and not settings.tls_cert:
        raise InvalidInput("--tls-key needs --tls-cert", param="tls_cert")
    Proxies(settings.trusted_proxy)
    root_of(settings.proxy_root_path)
    checked_origins(settings.cors_origin)
    _mode(settings.uds_mode)
    if settings.uds:
        remove_dead(Path(settings.uds))
    return Certificate(settings.tls_cert, settings.tls_key) if settings.tls_cert else None


async def listen(
    runner: web.AppRunner, settings: HttpSettings, certificate: Certificate | None, reuse_port: bool
) -> list[str]:
    """Open all of it and give the URLs, that of the port first; raises InvalidInput, naming what cannot be opened."""
    await runner.setup()
    urls = []
    for host, port in _addresses(settings):
        with _told(f"{host}:{port}"):
            site = web.TCPSite(
                runner,
                host,
                port,
                ssl_context=certificate.context if certificate else None,
                backlog=_BACKLOG,
                reuse_port=reuse_port or None,
            )
            before = len(runner.addresses)
            await site.start()
        scheme = "https" if certificate else "http"
        urls.append(str(URL.build(scheme=scheme, host=host, port=runner.addresses[before][1])))
    if settings.uds:
        with _told(settings.uds), _creating(_mode(settings.uds_mode)):
            await web.UnixSite(runner, settings.uds, backlog=_BACKLOG).start()
        urls.append(f"unix:{settings.uds}")
    gc.freeze()  # what is loaded stays: a full collection need not walk it each time
    return urls


def take_down(settings: HttpSettings) -> None:
    """Remove our Unix socket, while it is ours: once we stop to accept, the next process may make it anew."""
    if settings.uds:
        Path(settings.uds).unlink(missing_ok=True)


def remove_dead(path: Path) -> None:
    """Remove a Unix socket on which nobody listens any more; raises InvalidInput if the path is something else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InvalidInput(f"{path} is there and is no socket", param="uds")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    except OSError as error:
        raise InvalidInput(f"cannot listen on {path}: {error.strerror or error}", param="uds") from error
    raise InvalidInput(f"cannot listen on {path}: another process does", param="uds")


def _addresses(settings: HttpSettings) -> Iterator[tuple[str, int]]:
    if settings.tcp:
        yield settings.host, settings.port
    if settings.admin_port:
        yield settings.admin_host or settings.host, settings.admin_port


@contextmanager
def _told(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"cannot listen on {place}: {error.strerror or error}", param="port") from error


@contextmanager
def _creating(mode: int) -> Iterator[None]:
    """Create files with a mode from the start, before anyone can open them."""
    before = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(before)


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise InvalidInput(f"--uds-mode {text} is no mode, such as 660", param="uds_mode")
    return mode
