"""GET /: a page for people, made here whole; it asks nothing of any other host."""

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Collection
from html import escape
from importlib.resources import files
from string import Template

from aiohttp import web
from redis.exceptions import RedisError

from infinity_pool.api.access.auth import public
from infinity_pool.api.described import described
from infinity_pool.api.first_request import first_request
from infinity_pool.api.keys import CLIENT, SETTINGS, TENANTS
from infinity_pool.api.network.admin import api_url
from infinity_pool.broker.errors import Unavailable
from infinity_pool.broker.presence import ModelStatus, WorkerInfo, merged

routes = web.RouteTableDef()

_SOURCE = (files("infinity_pool.api") / "page.html").read_text(encoding="utf-8")
_PAGE = Template(_SOURCE)
_CARD = Template(
    '<article class="card"><div class="name"><h3>$name</h3><span class="badge $kind">$state</span></div>'
    "<dl>$facts</dl></article>"
)
_REFRESH = '<meta http-equiv="refresh" content="2">'
_TROUBLE = '<div class="card trouble" role="alert">The queue cannot be reached now; this is what was known last.</div>'
_NONE = '<div class="card">No model is served yet. Start one with <code>infinity-worker --model MODEL</code>.</div>'


def _policy() -> str:
    """Allow the page its own style and its one script, by hash, and nothing else."""
    scripts = re.findall(r"<script>(.*?)</script>", _SOURCE, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"


_HEADERS = {"Content-Security-Policy": _policy(), "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


@routes.get("/")
@public
@described(gives="text/html")
async def page(request: web.Request) -> web.Response:
    """Show the models, a line to try one, and where to look further."""
    client = request.app[CLIENT]
    trouble = ""
    try:
        models = await client.models()
    except (RedisError, Unavailable):
        models, trouble = list(client.status.values()), _TROUBLE
    ready = [model.name for model in models if model.ready]
    known = sorted(models, key=lambda model: (not model.ready, not _embeds(model)))
    text = _PAGE.substitute(
        refresh="" if len(ready) == len(models) > 0 else _REFRESH,
        summary=f"{len(ready)} of {len(models)} model{'' if len(models) == 1 else 's'} ready",
        trouble=trouble,
        models="".join(map(_card, models)) or _NONE,
        curl=escape(_curl(request, *((known[0].name, _tasks(known[0])) if known else ("MODEL", ())))),
    )
    return web.Response(
        body=text.encode("utf-8", "replace"), content_type="text/html", charset="utf-8", headers=_HEADERS
    )


def _curl(request: web.Request, model: str, tasks: Collection[str]) -> str:
    """Give a command for a shell, with the host that the caller used, quoted as it may hold anything."""
    url = api_url(request, request.app[SETTINGS])
    path, body = first_request(model, tasks)
    parts = [f"curl {shlex.quote(url + path)}", "-H 'Content-Type: application/json'"]
    keyring = request.app[TENANTS].keyring
    if keyring.known and keyring.closed:
        variable = "INFINITY_API_KEY" if request.app[SETTINGS].api_key else "YOUR_KEY"
        parts.append(f'-H "Authorization: Bearer ${variable}"')
    return " \\\n  ".join([*parts, f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}"])


def _card(model: ModelStatus) -> str:
    kind, state = _state(model)
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in _facts(model).items() if value
    )
    return _CARD.substitute(name=escape(model.name), kind=kind, state=escape(state), facts=facts)


def _state(model: ModelStatus) -> tuple[str, str]:
    """Give the badge's kind and words."""
    if model.ready:
        return "ready", "ready"
    for worker in model.workers:
        share = "" if worker.progress is None else f" {worker.progress:.0%}"
        return "loading", f"{worker.stage or worker.state}{share}"
    return "gone", "no worker"


def _facts(model: ModelStatus) -> dict[str, str]:
    """Give what the card tells, by its label; workers of one name are alike, so one speaks for all."""
    worker = merged(model.workers) or next(iter(model.workers), WorkerInfo(id="", model=model.name))
    return {
        "Tasks": ", ".join(worker.tasks),
        "Takes": ", ".join(worker.modalities),
        "Engine": worker.engine,
        "Device": ", ".join(sorted({each.device for each in model.workers if each.device})),
        "Number format": worker.dtype,
        "Dimensions": _count(worker.dimensions) if _embeds(model) else "",
        "Longest item": _count(worker.max_length, "tokens"),
        "Batch": _count(worker.batch_tokens, "tokens"),
        "Workers": _count(len(model.workers)),
        "Speed": _count(round(worker.tokens_per_second), "tokens/s"),
        "Waiting": ", ".join(f"{waiting.items:,} {lane}" for lane, waiting in model.waiting.items()),
    }


def _embeds(model: ModelStatus) -> bool:
    return not {"embed", "multivector"}.isdisjoint(_tasks(model))


def _tasks(model: ModelStatus) -> set[str]:
    return {task for worker in model.workers for task in worker.tasks}


def _count(number: int | None, unit: str = "") -> str:
    return f"{number:,} {unit}".strip() if number else ""
