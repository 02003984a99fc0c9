"""Whether answers are as the OpenAPI document says."""

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from infinity_pool.api.app import make_app
from infinity_pool.api.openapi import document
from infinity_pool.api.settings import ApiSettings


@cache
def described() -> dict[str, Any]:
    """Give the OpenAPI document of a replica that was told nothing."""
    return document(make_app(ApiSettings()), "0")


@cache
def _validator(path: str, method: str, status: int) -> Draft202012Validator:
    served = described()
    answers = served["paths"][path][method]["responses"]
    assert str(status) in answers, f"{method} {path} answers {status}, which is not in the OpenAPI document"
    schema = answers[str(status)]["content"]["application/json"]["schema"]
    return Draft202012Validator(schema | {"components": served["components"]})


def check(path: str, status: int, answer: Any, method: str = "post") -> None:
    """Compare an answer with the document."""
    faults = [
        f"{error.json_path}: {error.message[:300]}" for error in _validator(path, method, status).iter_errors(answer)
    ]
    assert not faults, faults
