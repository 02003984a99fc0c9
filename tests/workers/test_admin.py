import urllib.error
import urllib.request
from http import HTTPStatus

import pytest

from infinity_pool.workers.admin import AdminPort
from infinity_pool.workers.measuring.meter import Meter


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_pages_are_served_by_path() -> None:
    meter = Meter("m", lambda: 3)
    meter.failed("worker_failed")
    pages = {
        "/ready": lambda: (HTTPStatus.SERVICE_UNAVAILABLE, b"stuck"),
        "/metrics": lambda: (HTTPStatus.OK, meter.exposition()),
    }
    with AdminPort(0, pages) as admin:
        assert fetch(admin.port, "/ready?x=1") == (503, "stuck")
        assert fetch(admin.port, "/other")[0] == 404
        status, text = fetch(admin.port, "/metrics")

    assert status == 200
    assert 'infinity_worker_failures_total{model="m",reason="worker_failed"} 1.0' in text
    assert "infinity_worker_jobs_held 3.0" in text
    with pytest.raises(urllib.error.URLError):
        fetch(admin.port, "/ready")
