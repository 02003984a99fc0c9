"""
Every Redis key, and what lives there.

The wire version is in each key. All keys of one model share its hash tag, so that one script may touch them in Redis
Cluster too; a reply channel has a tag of its own, and so has what is counted of one API key. Every key is bounded or
expires.
"""

import re

from infinity_pool.broker.errors import InvalidInput
from infinity_pool.broker.messages import WIRE_VERSION, Lane

GROUP = "workers"  # the consumer group on each stream of jobs
_PREFIX = f"infinity:{WIRE_VERSION}"
_NAME = re.compile(r"[^\s{}\x00-\x1f]{1,256}")


def check_name(name: str) -> str:
    """Give a model's or channel's name back if it can stand in a key; raises InvalidInput, naming `model`."""
    if not _NAME.fullmatch(name):
        raise InvalidInput("a model's name is 1 to 256 characters without spaces or braces", param="model")
    return name


def models() -> str:
    """Sorted set: names of the models by the Redis time, in ms, of their last heartbeat; old ones are dropped."""
    return f"{_PREFIX}:models"


def written() -> str:
    """String: nothing; it is written to see whether Redis takes writes, and expires."""
    return f"{_PREFIX}:written"


def jobs(model: str, lane: Lane) -> str:
    """Stream: encoded jobs of one lane, as fields c (cost), n (items), j (job); deleted when acknowledged."""
    return f"{_PREFIX}:{{{model}}}:jobs:{lane}"


def waiting(model: str) -> str:
    """Hash: items, tokens and bytes that are queued or held, as `LANE:items` …; at most six fields."""
    return f"{_PREFIX}:{{{model}}}:waiting"


def workers(model: str) -> str:
    """Sorted set: ids of a model's workers by the Redis time, in ms, of their last heartbeat; expires."""
    return f"{_PREFIX}:{{{model}}}:workers"


def worker(model: str, worker_id: str) -> str:
    """String: what a worker says of itself; it expires when its heartbeat stops, and that is its death."""
    return f"{_PREFIX}:{{{model}}}:worker:{worker_id}"


def fingerprint(model: str) -> str:
    """String: what the vectors of a model's living workers depend on; it expires with their heartbeats."""
    return f"{_PREFIX}:{{{model}}}:fingerprint"


def attempts(model: str) -> str:
    """Hash: how often a redelivered entry was started; a field goes when its entry does, and all after a day."""
    return f"{_PREFIX}:{{{model}}}:attempts"


def dead(model: str) -> str:
    """Stream: jobs that broke their worker every time, with the reason; bounded by length."""
    return f"{_PREFIX}:{{{model}}}:dead"


def cancelled(model: str) -> str:
    """Channel: ids of jobs, comma-separated, that nobody waits for any more."""
    return f"{_PREFIX}:{{{model}}}:cancelled"


def replies(channel: str) -> str:
    """Stream: encoded replies to one listener, trimmed by it; it expires when the listener's heartbeat stops."""
    return f"{_PREFIX}:replies:{{{channel}}}"


def check_replies(key: str) -> None:
    """Raise InvalidInput unless a key is that of a reply channel: a job must not have a worker write elsewhere."""
    if not key.startswith(f"{_PREFIX}:replies:{{"):
        raise InvalidInput(f"{key[:256]!r} is no reply channel", param="reply_to")


def open_jobs(channel: str) -> str:
    """Hash: ids of the jobs that a named producer has not had the replies of; bounded by it, and expires."""
    return f"{_PREFIX}:open:{{{channel}}}"


def callers() -> str:
    """Hash: of each API key that is managed here, by name, its hash and what it may do; bounded by `keyring`."""
    return f"{_PREFIX}:{{keys}}:all"


def callers_version() -> str:
    """String: another with each change of an API key; it stays when the last key goes, so that the door stays shut."""
    return f"{_PREFIX}:{{keys}}:version"


def callers_log() -> str:
    """Stream: what was done with API keys, and by whom; bounded by length."""
    return f"{_PREFIX}:{{keys}}:log"


def buckets(name: str) -> str:
    """Hash: what an API key may ask for at once, r (requests), t (tokens), at (ms), held (items); expires when full."""
    return f"{_PREFIX}:{{key:{name}}}:buckets"


def leases(name: str) -> str:
    """Sorted set: an API key's requests in hand, `ID:ITEMS`, by the time, in ms, when they count no more; expires."""
    return f"{_PREFIX}:{{key:{name}}}:leases"


def quota(name: str, period: str) -> str:
    """String: an API key's tokens in a day (2026-11-30) or month (2026-11), UTC; expires after it."""
    return f"{_PREFIX}:{{key:{name}}}:tokens:{period}"


def usage(day: str) -> str:
    """Hash: what was run on a day, UTC, as `KEY MODEL TASK UNIT`; expires."""
    return f"{_PREFIX}:usage:{day}"


def kept(kind: str, owner: str) -> str:
    """Sorted set: ids of an owner's files or batches, of all where it is `*`, by when, in µs, they came; expires."""
    return f"{_PREFIX}:{{batches}}:{kind}:of:{owner}"


def expiring() -> str:
    """Sorted set: ids of all files and batches by when, in s since 1970, they are removed; they are, and it expires."""
    return f"{_PREFIX}:{{batches}}:expiring"


def record(id: str) -> str:
    """Hash: what is known of a file or a batch, each field in JSON; expires."""
    return f"{_PREFIX}:{{batches}}:record:{id}"


def open_batches() -> str:
    """Sorted set: batches that have not ended, `ID OWNER`, by when, in µs, they came; bounded for each owner."""
    return f"{_PREFIX}:{{batches}}:open"


def batch_claim(id: str) -> str:
    """String: which replica runs a batch; it expires when its heartbeat stops, and another takes it."""
    return f"{_PREFIX}:{{batches}}:claim:{id}"


def batch_parts(id: str) -> str:
    """List: names of the parts that a batch's output and errors are so far, in order; gone with its end, or expires."""
    return f"{_PREFIX}:{{batches}}:parts:{id}"
