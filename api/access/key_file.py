"""A file of API keys: their hashes, and what each may do."""

import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from infinity_pool.broker.callers import Caller, check_hash, read_caller
from infinity_pool.broker.errors import InvalidInput

logger = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


class KeyFile:
    """
    Reads the keys of a file, and again when it is another; `callers` are those of the last time, by hash.

    Raises InvalidInput, naming the file and the key in it, if it cannot be read at first; later the log says so, and
    the keys stay as they were.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stamp = self._look()
        self.callers: Mapping[str, Caller] = self._read()

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp = stamp
                self.callers = self._read()
                logger.info("read %d keys of %s", len(self.callers), self._path)
        except InvalidInput as error:
            logger.error("the keys stay as they were: %s", error)

    def _look(self) -> Stamp:
        try:
            found = self._path.stat()
        except OSError as error:
            raise InvalidInput(f"{self._path}: {error.strerror}", param="api_key_file") from error
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Mapping[str, Caller]:
        found: dict[str, Caller] = {}
        names: set[str] = set()
        try:
            for place, fields in self._entries(self._path.read_text(encoding="utf-8")):
                hashed, caller = _key(fields, place)
                if caller.name in names or hashed in found:
                    raise InvalidInput(f"{place}: {caller.name} is there twice, or its hash is")
                names.add(caller.name)
                found[hashed] = caller
        except (OSError, ValueError, InvalidInput) as error:
            raise InvalidInput(f"{self._path}: {error}", param="api_key_file") from error
        return found

    def _entries(self, text: str) -> Iterator[tuple[str, Any]]:
        """Give the fields of each key, and where in the file it is."""
        if self._path.suffix == ".toml":
            yield from (
                (f"key {number}", fields) for number, fields in enumerate(tomllib.loads(text).get("keys", []), 1)
            )
            return
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    yield f"line {number}", orjson.loads(line)
                except orjson.JSONDecodeError:  # whose message has the line in it
                    raise InvalidInput(f"line {number} is no JSON") from None


def _key(fields: Any, place: str) -> tuple[str, Caller]:
    if not isinstance(fields, dict):
        raise InvalidInput(f"{place}: each key is an object with `name` and `hash`")
    rest = {name: value for name, value in fields.items() if name != "hash"}
    try:
        return check_hash(fields.get("hash")), read_caller(rest)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from error
