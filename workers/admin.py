"""A worker's own little HTTP port, for probes and Prometheus: /health, /ready and /metrics."""

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

Page = Callable[[], tuple[HTTPStatus, bytes]]

_TEXT = "text/plain; version=0.0.4; charset=utf-8"  # what Prometheus expects


class AdminPort:
    """
    Serves pages by path from a thread, so that it answers while the event loop is busy; a context manager.

    Raises OSError if the port cannot be opened.
    """

    def __init__(self, port: int, pages: dict[str, Page]) -> None:
        self._server = ThreadingHTTPServer(("", port), _handler(pages))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="admin", daemon=True)

    @property
    def port(self) -> int:
        """The port that is open."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(pages: dict[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "infinity-worker"
        sys_version = ""
        timeout = 5.0  # s; a caller that sends nothing is let go

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            status, body = page() if page else (HTTPStatus.NOT_FOUND, b"not found\n")
            self.send_response(status)
            self.send_header("Content-Type", _TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
