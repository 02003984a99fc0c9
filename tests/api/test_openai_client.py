"""OpenAI's own client, unchanged, against a real server and a real worker."""

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.api.conftest import WIDTH, Api


@pytest.fixture
def client(api: Api) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(api: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_base64_by_default(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="m", input=["four", "sixsix"])

    assert [entry.embedding for entry in answer.data] == [[4.0] * WIDTH, [6.0] * WIDTH]
    assert [entry.index for entry in answer.data] == [0, 1]
    assert {entry.object for entry in answer.data} == {"embedding"}
    assert (answer.object, answer.model) == ("list", "m")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 2


def test_floats(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="m", input="four", encoding_format="float")

    assert [entry.embedding for entry in answer.data] == [[4.0] * WIDTH]


def test_dimensions_and_user(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="m", input="four", dimensions=5, user="someone")

    assert answer.data[0].embedding == [4.0] * 5


@pytest.mark.parametrize(
    "option", [{"normalize": False}, {"prompt": "a: "}, {"prompt_name": "a"}, {"input_type": "query"}]
)
def test_our_own_options_reach_the_model(client: openai.OpenAI, option: dict[str, object]) -> None:
    with pytest.raises(
        openai.BadRequestError, match=f"no option '{next(iter(option))}'"
    ):  # this model has none of them
        client.embeddings.create(model="m", input="four", extra_body=option)


def test_a_text_that_would_be_cut_is_refused_on_request(client: openai.OpenAI) -> None:
    texts = ["four", "a" * 4000]
    assert len(client.embeddings.create(model="m", input=texts).data) == 2

    with pytest.raises(openai.UnprocessableEntityError, match="512 tokens") as caught:
        client.embeddings.create(model="m", input=texts, extra_body={"truncate": False})

    assert caught.value.param == "input[1]"


def test_only_the_fields_that_openai_and_infinity_have(client: openai.OpenAI) -> None:
    answer = client.embeddings.with_raw_response.create(model="m", input="four").http_response.json()

    assert answer.keys() == {"object", "data", "model", "usage", "id", "created"}
    assert answer["data"][0].keys() == {"object", "index", "embedding"}
    assert answer["usage"].keys() == {"prompt_tokens", "total_tokens"}


def test_models(client: openai.OpenAI) -> None:
    listed = {model.id: model for model in client.models.list()}

    assert listed["m"] == client.models.retrieve("m")
    assert listed["m"].owned_by == "infinity"


def test_an_unknown_model_is_404_and_names_those_there_are(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=r"no model 'absent' is served here; there is: .*m") as caught:
        client.embeddings.create(model="absent", input="a")

    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="no model 'absent/x'"):
        client.models.retrieve("absent/x")


def test_a_bad_field_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="m", input="a", dimensions=WIDTH + 1)

    assert (caught.value.code, caught.value.param) == ("invalid_input", "dimensions")


async def test_async(async_client: openai.AsyncOpenAI) -> None:
    answer = await async_client.embeddings.create(model="m", input=["x" * n for n in range(1, 200)], dimensions=2)

    assert [entry.embedding for entry in answer.data] == [[float(n)] * 2 for n in range(1, 200)]
    assert "m" in [model.id async for model in async_client.models.list()]
