"""Who calls: a key's name, what it is for, and how much it may ask for; never the key itself."""

import dataclasses
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from infinity_pool.broker.errors import Forbidden, InvalidInput
from infinity_pool.broker.messages import Lane, Task

LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_items", "tokens_per_day", "tokens_per_month")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A key's name: it can stand in a Redis key, a label and a column."""

_HASH = re.compile(r"[0-9a-f]{64}")
_PREFIX = "ip-"
_BYTES = 32  # of chance in a key

_Count = Annotated[int, Field(ge=0, le=10**15)]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """
    What is known of a key, by whose `name` its work is counted, also when the key was changed for another.

    Where `models`, `tasks` or `lanes` are empty it may use all of them. `weight` is its share of a lane beside other
    keys'. A limit of 0 is none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str = ""
    weight: Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)] = 1.0
    models: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()
    lanes: tuple[Lane, ...] = ()
    admin: bool = False
    requests_per_minute: _Count = 0
    tokens_per_minute: _Count = 0
    concurrent_items: _Count = 0
    tokens_per_day: _Count = 0
    tokens_per_month: _Count = 0

    @property
    def id(self) -> str:
        """What tells this caller's jobs from others'; empty for one without a key."""
        return self.name

    @cached_property
    def limited(self) -> bool:
        """Whether it has any limit."""
        return any(getattr(self, limit) for limit in LIMITS)

    def may_see(self, model: str) -> bool:
        """Whether a model is among those it may use."""
        return not self.models or model in self.models

    def check(self, model: str, task: str = "", lane: str = "") -> None:
        """Raise Forbidden for a model, a task or a lane that it may not use."""
        if not self.may_see(model):
            raise Forbidden(f"this key is not for model {model[:256]!r}, only {', '.join(self.models)}", param="model")
        if task and self.tasks and task not in self.tasks:
            raise Forbidden(f"this key is not for {task}, only {', '.join(self.tasks)}")
        if lane and self.lanes and lane not in self.lanes:
            raise Forbidden(
                f"this key is not for the {lane} lane, only {', '.join(self.lanes)}: name that in the request"
            )

    def told(self) -> dict[str, Any]:
        """Give what differs from a key that may do anything but administer, without the name."""
        fields = dataclasses.asdict(self)
        return {name: fields[name] for name in fields if name != "name" and fields[name] != getattr(_PLAIN, name)}


_PLAIN = Caller()
_CALLER = TypeAdapter(Caller)

ANYONE = Caller(admin=True)
"""Who calls a server that asks for no key."""


def new_secret() -> str:
    """Make a key, of 256 bits."""
    return _PREFIX + secrets.token_urlsafe(_BYTES)


def digest(key: str) -> str:
    """Give a key's hash, SHA-256 in hex, by which alone it is known: what has 256 bits of chance needs no salt."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def check_hash(value: object) -> str:
    """Give a key's hash back; raises InvalidInput, without repeating it: it may be the key."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise InvalidInput("hash: it is the SHA-256 of the key, 64 digits of lower-case hex", param="hash")
    return value


def read_caller(fields: Mapping[str, Any]) -> Caller:
    """Make a caller of its fields; raises InvalidInput, naming the one that is wrong."""
    try:
        caller = _CALLER.validate_python({name: _tuple(value) for name, value in fields.items()})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = str(first["loc"][0]) if first["loc"] else "name"
        raise InvalidInput(f"{param}: {first['msg']}", param=param) from None
    if not NAME.fullmatch(caller.name):
        raise InvalidInput("name: it is 1 to 64 letters, digits and . _ -, the first none of these", param="name")
    return caller


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
