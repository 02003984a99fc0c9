"""The kinds of load that `infinity bench` puts on a server."""

from dataclasses import dataclass

from infinity_pool.cli.bench.corpus import Lengths


@dataclass(frozen=True)
class Clients:
    """Some clients that all do the same: send `items` texts, wait for the answer, send the next."""

    count: int
    items: int
    lengths: Lengths


@dataclass(frozen=True)
class Scenario:
    """Clients that send so many `requests` in all, perhaps while others keep the server busy behind them."""

    about: str
    clients: Clients
    requests: int
    behind: Clients | None = None


SCENARIOS = {
    "s1": Scenario("one client, one short text", Clients(1, 1, "short"), 300),
    "s2": Scenario("64 clients, one short text", Clients(64, 1, "short"), 4000),
    "s3": Scenario("8 clients, 32 mixed texts", Clients(8, 32, "mixed"), 120),
    "s4": Scenario("256 clients, one short text", Clients(256, 1, "short"), 5000),
    "s5": Scenario(
        "one short text while 4 clients send 64 mixed ones",
        Clients(1, 1, "short"),
        200,
        behind=Clients(4, 64, "mixed"),
    ),
    "control": Scenario("64 clients, one short text, for a dummy model", Clients(64, 1, "short"), 10_000),
    "mixed64": Scenario("8 clients, 64 mixed texts, for a dummy model", Clients(8, 64, "mixed"), 1000),
}

USUAL = ("s1", "s2", "s3", "s4", "s5")
"""What is run when no scenario is named; the others measure everything but a model, with the engine `dummy`."""
