"""Hugging Face's InferenceClient, which speaks to text-embeddings-inference, and LangChain's class on top of it."""

import asyncio
import json
import sys

import numpy as np
from huggingface_hub import AsyncInferenceClient, InferenceClient
from langchain_huggingface import HuggingFaceEndpointEmbeddings

url, asked = sys.argv[1], json.loads(sys.argv[2])
texts = asked["texts"]
client = InferenceClient(model=url)
awaiting = AsyncInferenceClient(model=f"{url}/embed")
langchain = HuggingFaceEndpointEmbeddings(model="it/names-a-model-of-the-hub")
langchain.client, langchain.async_client = client, awaiting


async def awaited() -> list[list[list[float]]]:
    cut = await awaiting.feature_extraction(texts, truncate=True, normalize=True)
    return [cut.tolist(), await langchain.aembed_documents(texts)]


vectors = client.feature_extraction(texts)
similar = InferenceClient(model=f"{url}/similarity").sentence_similarity(texts[0], other_sentences=texts[1:])
first, second = asyncio.run(awaited())
told = {
    "vectors": {
        "inference": vectors.tolist(),
        "inference, awaited": first,
        "LangChain": langchain.embed_documents(texts),
        "LangChain, awaited": second,
        "LangChain, queries": [langchain.embed_query(text) for text in texts],
    },
    "facts": {"cosines": bool(np.allclose(similar, vectors[1:] @ vectors[0], atol=1e-5))},
}
json.dump(told, sys.stdout)
