"""One line an event, as text or as JSON, on stderr."""

import json
import logging
import sys
import warnings
from collections.abc import Iterator

import pytest

from infinity_pool.cli.logs import start_logging

log = logging.getLogger("infinity_pool.test")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def fail() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it broke")


def test_text_is_one_line_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", "text")
    log.info("said %s", "one\r\nERROR forged")
    log.debug("not said")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("infinity_pool.test: said one\\r\\nERROR forged")


def test_a_traceback_is_for_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", "text")
    fail()
    brief = capsys.readouterr().err
    assert len(brief.splitlines()) == 1
    assert "it broke: ValueError: two\\nlines (test_logs.py:" in brief

    start_logging("debug", "text")
    fail()
    assert "Traceback" in capsys.readouterr().err


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", "json")
    log.warning("said %d", 3)
    fail()
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("warning", "infinity_pool.test", "said 3")
    assert "ValueError: two\nlines" in second["error"]


def test_warnings_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", "json")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "DeprecationWarning: old" in json.loads(capsys.readouterr().err)["message"]


def test_lines_go_to_what_stands_as_stderr_at_that_moment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_logging("info", "text")
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    log.info("here")
    assert "here" in capsys.readouterr().out
