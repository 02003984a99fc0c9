"""
Every error this project raises on purpose; `code` is its name on the wire.

* InfinityError              internal             our own fault, told to the caller
  + InvalidInput             invalid_input        the request cannot be served as it stands
    + Unprocessable          unprocessable        it is well-formed, but one of its items cannot be read or run
  + Unauthorized             unauthorized         the caller's key is missing or wrong
  + Forbidden                forbidden            the caller's key is not for this
  + ModelNotFound            model_not_found      no such model is known
  + NotFound                 not_found            the caller has nothing of this id
  + Overloaded               overloaded           the model's queue is full; `retry_after` says when to try again
    + RateLimited            rate_limit_exceeded  the caller's key asked for too much in too short a time
    + QuotaExceeded          insufficient_quota   the caller's key has had its tokens for the day or month
  + DeadlineExceeded         deadline_exceeded    no answer within the job's time
  + Unavailable              unavailable          the queue, or every worker of the model, cannot be reached now
  + WorkerFailed             worker_failed        a worker broke while it ran this job
    + DeadLettered           dead_lettered        a job broke its worker every time it was tried
  + Cancelled                cancelled            the caller went away first
"""

from typing import Any, ClassVar


class InfinityError(Exception):
    """
    An error the caller should hear about.

    `param` names the request field at fault, if one is, and `item` the place in the request of the item at fault, from
    0; `retry_after` is in seconds.
    """

    code: ClassVar[str] = "internal"

    def __init__(
        self, message: str, *, param: str | None = None, item: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.item = item
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message if self.item is None else f"item {self.item}: {self.message}"

    def to_wire(self) -> dict[str, Any]:
        """Give the fields that a reply carries."""
        return {
            "code": self.code,
            "message": self.message,
            "param": self.param,
            "item": self.item,
            "retry_after": self.retry_after,
        }


class InvalidInput(InfinityError):
    """The request cannot be served as it stands."""

    code = "invalid_input"


class Unprocessable(InvalidInput):
    """The request is well-formed, but one of its items cannot be read or run."""

    code = "unprocessable"


class Unauthorized(InfinityError):
    """The caller's key is missing or wrong."""

    code = "unauthorized"


class Forbidden(InfinityError):
    """The caller's key is not for this."""

    code = "forbidden"


class ModelNotFound(InfinityError):
    """No such model is known."""

    code = "model_not_found"


class NotFound(InfinityError):
    """The caller has nothing of this id."""

    code = "not_found"


class Overloaded(InfinityError):
    """The model's queue is full."""

    code = "overloaded"


class RateLimited(Overloaded):
    """The caller's key asked for too much in too short a time."""

    code = "rate_limit_exceeded"


class QuotaExceeded(Overloaded):
    """The caller's key has had its tokens for the day or month."""

    code = "insufficient_quota"


class DeadlineExceeded(InfinityError):
    """No answer came within the job's time."""

    code = "deadline_exceeded"


class Unavailable(InfinityError):
    """The queue, or every worker of the model, cannot be reached now."""

    code = "unavailable"


class WorkerFailed(InfinityError):
    """A worker broke while it ran this job."""

    code = "worker_failed"


class DeadLettered(WorkerFailed):
    """The job broke its worker every time it was tried."""

    code = "dead_lettered"


class Cancelled(InfinityError):
    """The caller went away before the answer came."""

    code = "cancelled"


def _tree(cls: type[InfinityError]) -> list[type[InfinityError]]:
    return [cls, *(below for sub in cls.__subclasses__() for below in _tree(sub))]


BY_CODE = {cls.code: cls for cls in _tree(InfinityError)}


def from_wire(fields: dict[str, Any]) -> InfinityError:
    """
    Make the error that `to_wire` described; an unknown code becomes the base class.

    What a worker refuses of one item was well-formed, or it would not have come that far.
    """
    cls = BY_CODE.get(fields.get("code", ""), InfinityError)
    if cls is InvalidInput and fields.get("item") is not None:
        cls = Unprocessable
    return cls(
        str(fields.get("message", "")),
        param=fields.get("param"),
        item=fields.get("item"),
        retry_after=fields.get("retry_after"),
    )
