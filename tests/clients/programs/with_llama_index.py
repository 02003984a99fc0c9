"""LlamaIndex: its classes for servers like OpenAI's and text-embeddings-inference, and three rerankers."""

import asyncio
import json
import sys

from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

url, asked = sys.argv[1], json.loads(sys.argv[2])
texts, model, scorer = asked["texts"], asked["vectors"], asked["scores"]
openai = OpenAILikeEmbedding(model_name=model, api_base=f"{url}/v1", api_key="none", max_retries=0)
tei = TextEmbeddingsInference(model_name=model, base_url=url)
nodes = [TextNode(text=text, id_=str(place)) for place, text in enumerate(asked["documents"])]


def ranked(reranker: object) -> list[list[float]]:
    found = reranker.postprocess_nodes([NodeWithScore(node=node) for node in nodes], query_str=asked["query"])
    return [[int(one.node.node_id), one.score] for one in found]


def told_of_absent() -> str:
    try:
        ranked(JinaRerank(top_n=3, model="absent", base_url=f"{url}/v1", api_key="none"))
    except RuntimeError as error:
        return str(error)
    return ""


told = {
    "vectors": {
        "like OpenAI": openai.get_text_embedding_batch(texts),
        "like OpenAI, queries": [openai.get_query_embedding(text) for text in texts],
        "like OpenAI, awaited": asyncio.run(openai.aget_text_embedding_batch(texts)),
        "text-embeddings-inference": tei.get_text_embedding_batch(texts),
        "text-embeddings-inference, queries": [tei.get_query_embedding(text) for text in texts],
    },
    "scores": {
        "Jina": ranked(JinaRerank(top_n=3, model=scorer, base_url=f"{url}/v1", api_key="none")),
        "Cohere": ranked(CohereRerank(top_n=3, model=scorer, base_url=url, api_key="none")),
        "text-embeddings-inference": ranked(TextEmbeddingInference(top_n=3, base_url=url)),
    },
    "facts": {"absent is told": "no model" in told_of_absent()},
}
json.dump(told, sys.stdout)
