"""Who calls: a key's name, what it is for, and how much it may ask for; never the key itself."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Caller:
    """
    What is known of a key, by whose `name` its work is counted, also when the key was changed for another.

    Where `models`, `tasks` or `lanes` are empty it may use all of them. `weight` is its share of a lane beside other
    keys'. A limit of 0 is none.
    """

    name: str = ""
    weight: float = 1.0
    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    admin: bool = False
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrent_items: int = 0
    tokens_per_day: int = 0
    tokens_per_month: int = 0

    @property
    def id(self) -> str:
        """What tells this caller's jobs from others'; empty for one without a key."""
        return self.name


ANYONE = Caller(admin=True)
"""Who calls a server that asks for no key."""
