"""
Turns between keys, before the queue: who sends much waits behind their own, and not others behind them.

Start-time fair queuing (Goyal, Vin and Cheng, 1996): a key's job begins, in virtual time, where its last one ended or
now, and lasts for its tokens by the key's weight; the job that begins first has its turn. What is released is as much
as keeps the workers busy.

A key whose turn it is and that has little with the workers does not wait for room there: its job is released at once,
and a worker runs it before what other keys have more of (after the sparse flows of FQ-CoDel, RFC 8290).
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from infinity_pool.broker.errors import Overloaded
from infinity_pool.broker.messages import Lane, Result
from infinity_pool.broker.outbox import Group, QueueLimits, Ticket
from infinity_pool.broker.splitting import JOB_TOKENS
from infinity_pool.broker.watch import Watch

_BATCHES_AHEAD = {"cpu": 2}  # that keep a worker busy: what runs, which is one on a CPU, and what is next
_USUAL_AHEAD = 3
_SECONDS_AHEAD = 0.1  # of work, which a job of a silent key then waits for; well over a round trip
_FORGET = 1024  # keys that have sent nothing of late, beyond which they are looked for and forgotten


def goes_ahead(mine: int, others: int, little: int, much: int) -> bool:
    """Say whether tokens of one key are little, and those of others more than that and over `much`."""
    return mine <= little and others > max(mine, much)


@dataclass(slots=True, eq=False)
class _Line:
    """
    What one key has sent and is not released yet.

    `end` is where its last job ended, in virtual time; `out` are the tokens that are released and not answered.
    """

    weight: float = 1.0
    end: float = 0.0
    out: int = 0
    tickets: dict[Ticket, None] = field(default_factory=dict)
    items: int = 0
    tokens: int = 0
    in_line: bool = False

    @property
    def busy(self) -> bool:
        """Whether anything of it waits, or is with the workers."""
        return self.in_line or self.out > 0

    def join(self, ticket: Ticket) -> None:
        """Put a job at the end; it leaves by itself when its caller does."""
        self.tickets[ticket] = None
        self.items += len(ticket.job.items)
        self.tokens += ticket.job.cost
        ticket.future.add_done_callback(lambda _: self.leave(ticket))

    def leave(self, ticket: Ticket) -> None:
        """Take a job out, if it is here."""
        if ticket in self.tickets:
            del self.tickets[ticket]
            self.items -= len(ticket.job.items)
            self.tokens -= ticket.job.cost


class Turns:
    """
    One lane of a model: takes what keys send, and hands it to `release` in fair turns.

    `room` says how many tokens may be on the queue or with the workers at a time, `little` how many of one key may
    where there is no room, and `limits` how many may wait.
    """

    def __init__(
        self,
        release: Callable[[Group], None],
        room: Callable[[], int],
        little: Callable[[], int],
        limits: Callable[[], QueueLimits],
    ) -> None:
        self._release = release
        self._room = room
        self._little = little
        self._limits = limits
        self._lines: dict[str, _Line] = {}
        self._order: list[tuple[float, int, _Line]] = []  # lines by where their next jobs begin; some may be empty
        self._numbers = itertools.count()
        self._now = self._last = 0.0
        self._out = self._beyond = 0  # tokens that are released and not answered, and those that there was no room for

    def add(self, key: str, weight: float, tickets: Group) -> None:
        """Put one request's jobs in their key's line; raises Overloaded if the key has too much waiting already."""
        line = self._line(key)
        line.weight = weight
        self._check_room(line, tickets)
        for ticket in tickets:
            line.join(ticket)
        if not line.in_line:
            self._line_up(line, max(self._now, line.end))
        self._pump()

    def _line(self, key: str) -> _Line:
        if key not in self._lines and len(self._lines) >= _FORGET:
            self._lines = {name: line for name, line in self._lines.items() if line.busy or line.end > self._now}
        return self._lines.setdefault(key, _Line())

    def _check_room(self, line: _Line, tickets: Group) -> None:
        """Refuse what would come too late, by the key's part of the workers' speed."""
        limits, first = self._limits(), tickets[0].job
        weights = line.weight + sum(each.weight for _, _, each in self._order if each is not line and each.tickets)
        share = line.weight / weights
        if line.items < limits.items and line.tokens <= limits.tokens_before(first) * share:
            return
        wait = line.tokens / (limits.speed * share) if limits.speed else 1.0
        raise Overloaded("too much of this key waits already", retry_after=min(60.0, max(1.0, wait)))

    def _line_up(self, line: _Line, start: float) -> None:
        line.in_line = True
        heapq.heappush(self._order, (start, next(self._numbers), line))

    def _pump(self) -> None:
        """Release what there is room for, one job at least, and a little where there is none."""
        room = self._room()
        while self._order:
            start, _, line = self._order[0]
            ticket = next(iter(line.tickets), None)
            full = 0 < self._out - self._beyond >= room
            if ticket and full and not self._is_little(line, ticket.job.cost, room):
                return
            heapq.heappop(self._order)
            line.in_line = False
            if ticket is None:  # their callers have gone
                continue
            line.leave(ticket)
            self._now, line.end = start, start + ticket.job.cost / line.weight
            self._last = max(self._last, line.end)
            if line.tickets:
                self._line_up(line, line.end)
            self._let_go(line, ticket, beyond=ticket.job.cost if full else 0)

    def _is_little(self, line: _Line, cost: int, room: int) -> bool:
        """Say whether a key has little with the workers, with a job of this cost too, where others have more."""
        little = self._little()
        is_little = goes_ahead(line.out + cost, self._out - line.out, little, min(little, room // 2))
        return is_little and self._beyond + cost <= room

    def _let_go(self, line: _Line, ticket: Ticket, beyond: int) -> None:
        self._count(line, ticket.job.cost, beyond)
        ticket.future.add_done_callback(partial(self._came_back, line, ticket.job.cost, beyond))
        ticket.since = time.monotonic()
        self._release([ticket])

    def _count(self, line: _Line, cost: int, beyond: int) -> None:
        line.out += cost
        self._out += cost
        self._beyond += beyond

    def _came_back(self, line: _Line, cost: int, beyond: int, _: asyncio.Future[Result]) -> None:
        self._count(line, -cost, -beyond)
        if not (self._out or self._order):
            self._now = self._last  # a busy time is over, and what each had of it is forgotten
        self._pump()


class Turnstile:
    """The turns of every lane of every model; `release` puts jobs on a model's queue, which has its `limits`."""

    def __init__(
        self, watch: Watch, release: Callable[[str, Group], None], limits: Callable[[str], QueueLimits]
    ) -> None:
        self._watch = watch
        self._release = release
        self._limits = limits
        self._turns: dict[tuple[str, Lane], Turns] = {}

    def turns(self, model: str, lane: Lane) -> Turns:
        """Give those of one lane."""
        if (model, lane) not in self._turns:
            self._turns[model, lane] = Turns(
                partial(self._release, model),
                partial(self._room, model),
                partial(self._little, model),
                partial(self._limits, model),
            )
        return self._turns[model, lane]

    def job_tokens(self, model: str) -> int:
        """Say how large a job may be: no larger than a batch, since a turn is a job."""
        best = self._watch.best(model)
        return min(JOB_TOKENS, best.batch_tokens or JOB_TOKENS) if best else JOB_TOKENS

    def _little(self, model: str) -> int:
        """Give the tokens that hold up nobody for long: those of a batch."""
        best = self._watch.best(model)
        return best.batch_tokens if best else 0

    def _room(self, model: str) -> int:
        """Give the tokens that keep a model's workers busy: some batches, or less where these would take long."""
        best, status = self._watch.best(model), self._watch.status.get(model)
        if not (best and status):
            return 0
        batches = sum(_BATCHES_AHEAD.get(one.device, _USUAL_AHEAD) * one.batch_tokens for one in status.workers)
        return min(batches, int(_SECONDS_AHEAD * best.tokens_per_second) or batches)
