"""The client that Infinity publishes."""

import asyncio
import json
import sys

from infinity_client import Client
from infinity_client.api.default import embeddings, health, models, rerank
from infinity_client.models import OpenAIEmbeddingInputText, RerankInput

url, asked = sys.argv[1], json.loads(sys.argv[2])
client = Client(base_url=url)
texts = OpenAIEmbeddingInputText(input_=asked["texts"], model=asked["vectors"])
pairs = RerankInput(query=asked["query"], documents=asked["documents"], model=asked["scores"], return_documents=True)

sync = embeddings.sync(client=client, body=texts)
awaited = asyncio.run(embeddings.asyncio(client=client, body=texts))
ranked = rerank.sync(client=client, body=pairs)
told = {
    "vectors": {
        "sync": [one.embedding for one in sync.data],
        "awaited": [one.embedding for one in awaited.data],
    },
    "scores": {"sync": [[one.index, one.relevance_score] for one in ranked.results]},
    "facts": {
        "models": sorted(one.id for one in models.sync(client=client).data),
        "documents": [one.document for one in ranked.results],
        "unix": health.sync(client=client).to_dict()["unix"] > 0,
        "named": sync.id.startswith("infinity-") and sync.created > 0,
        "usage": sync.usage.prompt_tokens == sync.usage.total_tokens > 0,
    },
}
json.dump(told, sys.stdout)
