"""Where the API that `infinity serve` starts is found on this machine, and whether it lives."""

import http.client
import ipaddress
import socket

from infinity_pool.api.network.tls import client_context
from infinity_pool.api.settings import HttpSettings

_TIMEOUT = 2.0  # s for the API's word on its health


def url_of(settings: HttpSettings, host: str = "", port: int = 0) -> str:
    """Give the URL under which this machine reaches an API; `unix:` and a path if it has no port."""
    if not settings.tcp:
        return f"unix:{settings.uds}"
    shown = reachable(host or settings.host)
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port or settings.port}"


def admin_url_of(settings: HttpSettings) -> str:
    """Give the URL of the port for those who run the API, empty if it has none."""
    return url_of(settings, settings.admin_host, settings.admin_port) if settings.admin_port else ""


def reachable(host: str) -> str:
    """Give the address to call a server that listens on `host`, which may stand for all addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "::1" if address.version == 6 else "127.0.0.1"


def is_healthy(settings: HttpSettings) -> bool:
    """Whether an API on this machine says that it lives."""
    connection = _connection(settings)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connection(settings: HttpSettings) -> http.client.HTTPConnection:
    """Connect to our own process, whose certificate is for the name that others call it by."""
    host = reachable(settings.host)
    if not settings.tcp:
        return _UnixConnection(settings.uds)
    if not settings.tls_cert:
        return http.client.HTTPConnection(host, settings.port, timeout=_TIMEOUT)
    return http.client.HTTPSConnection(host, settings.port, timeout=_TIMEOUT, context=client_context(False))


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(self._path)
