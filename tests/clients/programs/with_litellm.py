"""LiteLLM, with its provider `infinity` and as one of OpenAI's."""

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would be fetched

import litellm

litellm.telemetry = False
url, asked = sys.argv[1], json.loads(sys.argv[2])
texts, documents = asked["texts"], asked["documents"]

embedded = litellm.embedding(model=f"infinity/{asked['vectors']}", input=texts, api_base=url, api_key="none")
cut = litellm.embedding(model=f"infinity/{asked['vectors']}", input=texts, api_base=url, api_key="none", dimensions=8)
openai = litellm.embedding(
    model=f"openai/{asked['vectors']}", input=texts, api_base=f"{url}/v1", api_key="none", encoding_format="float"
)
ranked = litellm.rerank(
    model=f"infinity/{asked['scores']}",
    query=asked["query"],
    documents=documents,
    return_documents=True,
    api_base=url,
    api_key="none",
)
told = {
    "vectors": {
        "infinity": [one["embedding"] for one in embedded.data],
        "openai": [one["embedding"] for one in openai.data],
    },
    "scores": {"infinity": [[one["index"], one["relevance_score"]] for one in ranked.results]},
    "facts": {
        "documents": [one["document"]["text"] for one in ranked.results],
        "width": len(cut.data[0]["embedding"]),
        "usage": embedded.usage.prompt_tokens > 0,
    },
}
json.dump(told, sys.stdout)
