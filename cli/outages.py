"""What a command says of a queue that it cannot reach."""

from collections.abc import Iterator
from contextlib import contextmanager

from infinity_pool.broker.connection import is_outage
from infinity_pool.broker.errors import Unavailable


@contextmanager
def telling_outages() -> Iterator[None]:
    """Raise Unavailable, with what to do, in place of an outage of the queue."""
    try:
        yield
    except Exception as error:
        if not is_outage(error):
            raise
        raise Unavailable(f"the queue cannot be reached; --redis-url says where it is: {error}") from error
