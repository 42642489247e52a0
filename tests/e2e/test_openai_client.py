"""Requests with the real openai client."""
import time

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"}]


@pytest.fixture(scope="module")
def client(abacus):
    return openai.OpenAI(base_url=abacus.url + "/v1", api_key="EMPTY", max_retries=0)


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["m"]
    assert client.models.retrieve("m").id == "m"


def test_completion(client):
    answer = client.completions.create(model="m", prompt="San Francisco is a", max_tokens=8, temperature=0)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert len(answer.choices) == 1 and answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_streamed_completion_is_the_same_text(client):
    whole = client.completions.create(model="m", prompt="Tom has 3", max_tokens=20, temperature=0, extra_body={"ignore_eos": True})
    stream = client.completions.create(model="m", prompt="Tom has 3", max_tokens=20, temperature=0, stream=True,
                                       stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == 20 and not chunks[-1].choices


def test_chat(client):
    answer = client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, max_tokens=200)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant" and answer.choices[0].message.content


def test_streamed_chat_is_the_same_text(client):
    whole = client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, max_tokens=60)
    chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, max_tokens=60, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_several_choices_and_seed(client):
    ask = lambda: client.completions.create(model="m", prompt="Anna", max_tokens=12, temperature=1, n=3, seed=5)
    first, second = ask(), ask()
    assert [c.index for c in first.choices] == [0, 1, 2]
    assert [c.text for c in first.choices] == [c.text for c in second.choices]
    assert len({c.text for c in first.choices}) > 1


def test_logprobs(client):
    answer = client.chat.completions.create(model="m", messages=MESSAGES, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert all(len(t.top_logprobs) == 3 and t.logprob == max(x.logprob for x in t.top_logprobs) for t in content)


def test_errors(client):
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt="x")
    assert "other" in str(missing.value)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="m", prompt="x", temperature=-1)


def test_response(client):
    answer = client.responses.create(model="m", input=MESSAGES[0]["content"], temperature=0, max_output_tokens=200)
    assert answer.object == "response" and answer.status == "completed" and answer.output_text
    assert answer.output_text == client.chat.completions.create(model="m", messages=MESSAGES, temperature=0).choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    with client.responses.stream(model="m", input=MESSAGES, temperature=0, max_output_tokens=200) as stream:
        types = [event.type for event in stream]
        assert stream.get_final_response().output_text == answer.output_text
    assert types[:2] == ["response.created", "response.in_progress"] and types[-1] == "response.completed"


def test_stored_response(client):
    first = client.responses.create(model="m", input=MESSAGES[0]["content"], temperature=0)
    assert client.responses.retrieve(first.id).output_text == first.output_text
    assert client.responses.input_items.list(first.id).data[0].content[0].text == MESSAGES[0]["content"]
    replayed = list(client.responses.retrieve(first.id, stream=True))
    assert replayed[-1].response.output_text == first.output_text
    assert list(client.responses.retrieve(first.id, stream=True, starting_after=4)) == replayed[5:]
    more = "Tom eats 2 apples. How many apples does Tom have now?"
    history = [*MESSAGES, {"role": "assistant", "content": first.output_text}, {"role": "user", "content": more}]
    second = client.responses.create(model="m", input=more, previous_response_id=first.id, temperature=0)
    assert second.output_text == client.responses.create(model="m", input=history, temperature=0, store=False).output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_background_response(client):
    queued = client.responses.create(model="m", input=MESSAGES, background=True, temperature=0)
    assert queued.status == "queued"
    while (answer := client.responses.retrieve(queued.id)).status in ("queued", "in_progress"):
        time.sleep(0.02)
    assert answer.status == "completed" and answer.output_text
    endless = client.responses.create(model="m", input=MESSAGES, background=True, extra_body={"ignore_eos": True})
    assert client.responses.cancel(endless.id).status == "cancelled"
    assert client.responses.retrieve(endless.id).status == "cancelled"
