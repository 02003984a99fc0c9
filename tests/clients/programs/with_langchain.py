"""LangChain's class for Infinity."""

import asyncio
import json
import sys

from langchain_community.embeddings import InfinityEmbeddings

url, asked = sys.argv[1], json.loads(sys.argv[2])
client = InfinityEmbeddings(model=asked["vectors"], infinity_api_url=url)
below = InfinityEmbeddings(model=asked["vectors"], infinity_api_url=f"{url}/v1")
told = {
    "vectors": {
        "documents": client.embed_documents(asked["texts"]),
        "below /v1": below.embed_documents(asked["texts"]),
        "awaited": asyncio.run(client.aembed_documents(asked["texts"])),
        "queries": [client.embed_query(text) for text in asked["texts"]],
    },
}
json.dump(told, sys.stdout)
