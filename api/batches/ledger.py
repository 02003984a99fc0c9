"""What a batch has answered, put down in parts, each written whole and then counted: a kill loses or doubles none."""

import time
from typing import Any

from infinity_pool.api.batches.answering import Answered
from infinity_pool.api.batches.storage import Line, Storage
from infinity_pool.broker.batches import Batch, Claim

_MOST_BYTES = 8 * 2**20  # that are not put down yet
_LONGEST = 1.0  # s

_COUNTS = ("offset", "completed", "failed", "tokens")

OUTPUT, ERRORS = "output", "errors"


class Ledger:
    """
    Answers of a batch in the order of its lines, which `claim` keeps for us.

    A part's name has the claim's token in it, so that who lost the claim overwrites nothing that counts.
    """

    def __init__(self, batch: Batch, claim: Claim, storage: Storage) -> None:
        self._id = batch.id
        self._claim = claim
        self._storage = storage
        self._counts: dict[str, int] = {name: getattr(batch, name) for name in _COUNTS}
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        self._pieces: dict[str, list[bytes]] = {OUTPUT: [], ERRORS: []}
        self._bytes = 0
        self._due = time.monotonic() + _LONGEST

    def add(self, line: Line, answered: Answered) -> None:
        """Put a line's answer behind all others."""
        self._pieces[OUTPUT if answered.ok else ERRORS].append(answered.data)
        self._bytes += len(answered.data)
        self._counts["completed" if answered.ok else "failed"] += 1
        self._counts["offset"] = line.end
        self._counts["tokens"] += answered.tokens

    @property
    def due(self) -> bool:
        """Whether it is time to commit."""
        return self._bytes > _MOST_BYTES or (self._bytes > 0 and time.monotonic() > self._due)

    async def commit(self, **more: Any) -> None:
        """Put down all that was added, and other fields of the batch with it; raises ClaimLost."""
        names = []
        for kind, pieces in self._pieces.items():
            if pieces:
                self._number += 1
                names.append(f"{kind}/{self._claim.token}-{self._number:06d}")
                await self._storage.put(f"{folder_of(self._id)}/{names[-1]}", b"".join(pieces))
        await self._claim.change({**self._counts, **more}, names)
        self._begin()


async def joined(storage: Storage, batch: Batch, parts: list[str], kind: str, into: str) -> int:
    """Put the parts of one kind together into a file; gives its size, 0 and no file where there are none."""
    paths = [f"{folder_of(batch.id)}/{name}" for name in parts if name.startswith(f"{kind}/")]
    return await storage.join(paths, into) if paths else 0


def folder_of(batch_id: str) -> str:
    """Give the folder of a batch's parts."""
    return f"parts/{batch_id}"
