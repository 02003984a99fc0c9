"""The compose file: valid, and what the queue needs."""

from typing import Any

import pytest
from compose_spec import PyCompose

from .conftest import ROOT


@pytest.fixture
def services() -> dict[str, Any]:
    text = (ROOT / "docker" / "compose.yaml").read_text()
    found: dict[str, Any] = PyCompose.from_yaml(text).to_dict()["services"]
    return found


def test_there_are_a_queue_an_api_and_a_worker(services: dict[str, Any]) -> None:
    assert {name: service.get("build", {}).get("target") for name, service in services.items()} == {
        "redis": None,
        "api": "api",
        "worker": "cpu",
        "worker-cuda": "cuda",
        "worker-tensorrt": "tensorrt",
        "worker-rocm": "rocm",
    }


def test_workers_on_gpus_come_when_asked_for(services: dict[str, Any]) -> None:
    profiles = {name: service["profiles"] for name, service in services.items() if service.get("profiles")}

    assert profiles == {f"worker-{kind}": [kind] for kind in ("cuda", "tensorrt", "rocm")}
    for name in profiles:
        worker = services["worker"]
        assert {part: services[name][part] for part in worker if part != "build"} == {
            part: given for part, given in worker.items() if part != "build"
        }


def test_redis_keeps_what_it_was_given(services: dict[str, Any]) -> None:
    command = " ".join(services["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert services["redis"]["volumes"]


def test_the_others_wait_for_it_and_find_it(services: dict[str, Any]) -> None:
    for name in ("api", "worker"):
        assert services[name]["depends_on"]["redis"]["condition"] == "service_healthy"
        assert services[name]["environment"]["INFINITY_REDIS_URL"] == "redis://redis:6379/0"


def test_the_api_is_open_to_this_host_only(services: dict[str, Any]) -> None:
    assert services["api"]["ports"] == ["127.0.0.1:7997:7997"]


def test_files_are_kept_where_the_api_may_write(services: dict[str, Any]) -> None:
    folder = services["api"]["environment"]["INFINITY_FILES"]
    assert services["api"]["volumes"] == [f"files:{folder}"]
    assert f"install -d -o infinity /home/infinity/.cache {folder}\n" in (ROOT / "docker" / "Dockerfile").read_text()
