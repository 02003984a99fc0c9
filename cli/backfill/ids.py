"""Which ids there were: an index on the disk, so that memory does not grow with them."""

import sqlite3

_CACHE_KIB = 16 * 1024


class Ids:
    """A set of ids, in a file that goes with its process."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)  # a file without a name, made when the cache is full
        for line in (f"PRAGMA cache_size = -{_CACHE_KIB}", "PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF"):
            self._database.execute(line)
        self._database.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, id: str) -> bool:
        """Add one; false if it was there."""
        return self._database.execute("INSERT OR IGNORE INTO ids VALUES (?)", (id,)).rowcount == 1
