"""How this project logs: to stderr, one line an event, as text or as JSON."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import orjson


class TextFormatter(logging.Formatter):
    """One line of text; an exception's traceback is shown at level debug only, else what it says."""

    def __init__(self, tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S%z")
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Render a record; the message holds no line breaks, so the only one is before an exception."""
        text = super().format(record)
        return text if self._tracebacks else text.replace("\n", ": ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Keep line breaks out, so that what a caller sends cannot look like a line of ours."""
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Tell an exception in one line, or in full when asked to."""
        return super().formatException(ei) if self._tracebacks else _brief(ei[1])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, process, message and, if there was an exception, error."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return orjson.dumps(fields).decode()


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to whatever stands as sys.stderr at that moment: a progress display puts itself in between."""

    @property
    def stream(self) -> TextIO:
        """Give the stream to write to."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Pass over what the base class would keep."""


def start_logging(level: str, form: str) -> None:
    """Send this process's log, and Python's warnings, to stderr."""
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(tracebacks=level == "debug"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def _brief(error: BaseException) -> str:
    """Say what an exception is, and where it came from."""
    said = f"{type(error).__name__}: {error}".replace("\n", "\\n")
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else said
