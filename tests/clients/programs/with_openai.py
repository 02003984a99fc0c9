"""OpenAI's clients, that await and that do not, with base64 as they ask for it and with floats."""

import asyncio
import json
import sys

import openai

url, asked = sys.argv[1], json.loads(sys.argv[2])
texts, model = asked["texts"], asked["vectors"]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


async def awaited() -> list[list[float]]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as other:
        answer = await other.embeddings.create(model=model, input=texts, user="someone")
        return [one.embedding for one in answer.data]


def vectors(**options: object) -> list[list[float]]:
    return [one.embedding for one in client.embeddings.create(model=model, input=texts, **options).data]


def status(**options: object) -> int:
    try:
        client.embeddings.create(**options)
    except openai.APIStatusError as error:
        return error.status_code
    return 200


told = {
    "vectors": {
        "base64": vectors(),
        "floats": vectors(encoding_format="float"),
        "awaited": asyncio.run(awaited()),
        "jina": vectors(extra_body={"task": "text-matching", "normalized": True}),
    },
    "facts": {
        "models": sorted(one.id for one in client.models.list()),
        "retrieved": client.models.retrieve(model).id,
        "width": len(vectors(dimensions=8)[0]),
        "absent": status(model="absent", input="a"),
        "wrong": status(model=model, input="a", dimensions=100_000),
    },
}
json.dump(told, sys.stdout)
