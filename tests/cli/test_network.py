"""infinity serve and infinity bench over TLS and Unix sockets."""

import json
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from infinity_pool.api.clients.sync_client import SyncClient

from .conftest import PATIENCE, Running, Serving, free_port

DUMMY = ("--model", "dummy", "--engine", "dummy")
Start = Callable[..., Serving]


def test_tls_and_an_admin_port(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    ca = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca)
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    admin_port = free_port()
    tls = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    serving = start(Serving, *DUMMY, *tls, "--admin-port", str(admin_port), "--api-processes", "2").ready()

    url = f"https://127.0.0.1:{serving.port}"
    assert f"Serving dummy on {url}" in serving.output
    assert f"page     https://127.0.0.1:{admin_port}/" in serving.output
    trust = ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(f"https://127.0.0.1:{admin_port}/ready", timeout=PATIENCE, context=trust) as response:
        assert json.load(response)["ready"]
    figures = tmp_path / "figures.json"
    bench = ["bench", "--url", url, "--scenario", "control", "--requests", "50", "--json", str(figures)]
    assert _run(*bench, "--ca-file", ca).returncode == 0
    assert json.loads(figures.read_text())
    refused = _run(*bench)
    assert refused.returncode == 1
    assert "certificate verify failed" in refused.stderr


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "infinity_pool.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_a_unix_socket_alone(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    serving = start(Serving, *DUMMY, "--no-tcp", "--uds", str(path)).ready()

    assert f"--unix-socket {path} http://localhost/v1/embeddings" in serving.output
    with SyncClient("http://localhost", uds=str(path)) as client:
        assert client.embed("dummy", ["twelve chars"])[0][0] == 12
    socket.create_server(("127.0.0.1", serving.port)).close()  # nobody listens there


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tls-cert", "/absent/cert.pem"), "/absent/cert.pem cannot be used for TLS"),
        (("--uds", "/tmp/none.sock", "--api-processes", "2"), "--uds is for one API process"),
        (("--trusted-proxy", "nobody"), "'nobody' is no address or CIDR"),
    ],
)
def test_what_will_never_do_is_refused_before_a_model_is_loaded(
    options: tuple[str, ...], words: str, start: Callable[..., Running]
) -> None:
    running = start(Running, "main", "serve", *DUMMY, *options)
    assert running.wait() == 1
    assert words in running.output
    assert "Traceback" not in running.output
