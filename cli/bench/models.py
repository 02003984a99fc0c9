"""Finds out which model to ask a server for, when nobody said."""

import http.client
import json
import ssl
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import click

_TIMEOUT = 10.0  # s
_KEY_NEEDED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def only_model(url: str, api_key: str, *, usual: str = "", trust: ssl.SSLContext | None = None) -> str:
    """
    Give the model that a server says it serves; `usual` if that is one of them, or if the server does not say.

    Raises click.UsageError, naming what there is, if the choice is not ours; OSError if the server cannot be reached.
    """
    names = served_models(url, api_key, trust)
    if usual and (not names or usual in names):
        return usual
    if not names:
        raise click.UsageError(f"{url} serves no model now, or does not say which: name it with --model")
    if len(names) > 1:
        option = "--compare-model" if usual else "--model"
        raise click.UsageError(f"{url} serves {', '.join(names)}: choose one with {option}")
    return names[0]


def served_models(url: str, api_key: str, trust: ssl.SSLContext | None = None) -> list[str]:
    """Give the names of a server's models, but for those that it says are not ready; none if it does not tell."""
    own = urlsplit(url).path.rstrip("/") + "/models"
    for path in dict.fromkeys((own, "/v1/models")):
        status, body = _get(url, path, api_key, trust)
        if status in _KEY_NEEDED:
            raise click.UsageError(f"{url} answers {status} and says no model: is the key right?")
        if status == HTTPStatus.OK:
            return _names(body)
    return []


def _get(url: str, path: str, api_key: str, trust: ssl.SSLContext | None) -> tuple[int, bytes]:
    connection = _connection(url, trust)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(f"{url} cannot be asked for its models: {error!r}") from error
    finally:
        connection.close()


def _connection(url: str, trust: ssl.SSLContext | None) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT)
    context = trust or ssl.create_default_context()
    return http.client.HTTPSConnection(host, parts.port, timeout=_TIMEOUT, context=context)


def _names(body: bytes) -> list[str]:
    """Read OpenAI's list of models, or the bare array that some servers give."""
    try:
        listed: Any = json.loads(body)
    except ValueError:
        return []
    models = listed.get("data") if isinstance(listed, dict) else listed
    known = [each for each in models if isinstance(each, dict)] if isinstance(models, list) else []
    return [str(each["id"]) for each in known if "id" in each and each.get("ready", True)]
