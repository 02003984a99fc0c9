"""What Cohere's answers say of themselves."""

from typing import Any

from pydantic import BaseModel


class ApiVersion(BaseModel):
    """Which of Cohere's APIs was spoken."""

    version: str


class BilledUnits(BaseModel):
    """What Cohere would count: tokens and images that are embedded, or a query with up to 100 documents."""

    input_tokens: int | None = None
    images: int | None = None
    search_units: int | None = None


class Meta(BaseModel):
    """About an answer."""

    api_version: ApiVersion
    billed_units: BilledUnits


def meta_of(version: str, **units: int) -> dict[str, Any]:
    """Give an answer's Meta."""
    return {"api_version": {"version": version}, "billed_units": units}


def search_units(documents: int) -> int:
    """Count the searches that so many documents are, of 100 each."""
    return -(-documents // 100)
