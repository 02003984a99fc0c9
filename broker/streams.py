"""Reads a reply of XREAD or XREADGROUP, whichever protocol shaped it."""

from typing import Any

Entry = tuple[bytes, list[bytes]]


def entries_of(reply: Any) -> list[Entry]:
    """Give the entries of a raw reply about one stream, each as (id, [field, value, …]); none for an empty reply."""
    if not reply:
        return []
    if isinstance(reply, dict):  # RESP3: {stream: [entries]}
        ((entries,),) = reply.values()
    else:  # RESP2: [[stream, entries]]
        ((_, entries),) = reply
    return [(entry_id, _flat(fields)) for entry_id, fields in entries if fields]


def _flat(fields: Any) -> list[bytes]:
    if isinstance(fields, dict):
        return [part for pair in fields.items() for part in pair]
    return list(fields)
