"""Cohere's clients of both its APIs, that await and that do not."""

import asyncio
import json
import sys

import cohere

url, asked = sys.argv[1], json.loads(sys.argv[2])
texts, documents = asked["texts"], asked["documents"]
embed = {"model": asked["vectors"], "texts": texts, "input_type": "clustering"}
rank = {"model": asked["scores"], "query": asked["query"], "documents": documents}
first = cohere.Client(base_url=url, api_key="none")
second = cohere.ClientV2(base_url=url, api_key="none")


async def awaited() -> list[list[float]]:
    client = cohere.AsyncClientV2(base_url=url, api_key="none")
    return (await client.embed(**embed, embedding_types=["float"])).embeddings.float_


def status() -> int:
    try:
        second.embed(**embed | {"model": "absent"})
    except cohere.core.ApiError as error:
        return error.status_code
    return 200


by_type = second.embed(**embed, embedding_types=["float", "ubinary"])
returned = first.rerank(**rank, return_documents=True)
told = {
    "vectors": {
        "first": first.embed(**embed).embeddings,
        "first by type": first.embed(**embed, embedding_types=["float"]).embeddings.float_,
        "second": by_type.embeddings.float_,
        "awaited": asyncio.run(awaited()),
    },
    "scores": {
        "first": [[one.index, one.relevance_score] for one in returned.results],
        "second": [[one.index, one.relevance_score] for one in second.rerank(**rank).results],
    },
    "facts": {
        "documents": [one.document.text for one in returned.results],
        "bytes": len(by_type.embeddings.ubinary[0]),
        "texts": by_type.texts,
        "tokens": by_type.meta.billed_units.input_tokens > 0,
        "units": returned.meta.billed_units.search_units,
        "absent": status(),
    },
}
json.dump(told, sys.stdout)
