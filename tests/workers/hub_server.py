"""A model hub on this machine: as much of its HTTP interface as the real client asks for."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves one folder as one repository, to those who have the token if there is one."""

    daemon_threads = True

    def __init__(self, repository: str, folder: Path, token: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repository = repository
        self.files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        self.token = token
        self.fetched: list[str] = []
        self.strange: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        hub = self.server
        if not path.startswith(("/api/models/", f"/{hub.repository}/")):
            hub.strange.append(path)
        known = path.startswith((f"/api/models/{hub.repository}", f"/{hub.repository}/"))
        if not known or (hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}"):
            self._send(b"", 404, {"X-Error-Code": "RepoNotFound"})
        elif "/resolve/" in path:
            self._file(path.partition("/resolve/")[2].partition("/")[2])
        elif f"/tree/{COMMIT}" in path:
            tree = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": _sha256(file)}
                for name, file in hub.files.items()
            ]
            self._send(json.dumps(tree).encode(), 200, {"Content-Type": "application/json"})
        elif any(path.endswith(end) for end in ("/revision/main", f"/revision/{COMMIT}", hub.repository)):
            files = [{"rfilename": name, "size": file.stat().st_size} for name, file in hub.files.items()]
            about = {"id": hub.repository, "sha": COMMIT, "siblings": files}
            self._send(json.dumps(about).encode(), 200, {"Content-Type": "application/json"})
        else:
            self._send(b"", 404, {"X-Error-Code": "RevisionNotFound"})

    def _file(self, name: str) -> None:
        if name not in self.server.files:
            return self._send(b"", 404, {"X-Error-Code": "EntryNotFound"})
        file = self.server.files[name]
        if self.command == "GET":
            self.server.fetched.append(name)
        return self._send(file.read_bytes(), 200, {"ETag": f'"{_sha256(file)}"', "X-Repo-Commit": COMMIT})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def serve_hub(repository: str, folder: Path, token: str = "") -> Iterator[Hub]:
    """Run a hub for a while."""
    with Hub(repository, folder, token) as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
