"""Prompts given as embeddings: answers are bit-identical to those for the tokens with these embeddings. Also tests refusals."""
import base64
import pickle

import pytest
from torch_files import archive, embedding, floats, pickled, saved

from serving import ABACUS, serving

TEXT = "Tom has 3 apples and buys 4 more. How many apples has Tom? He counts them one by one, twice."


class Evil:
    def __reduce__(self):
        import os
        return os.system, ("touch /tmp/pwned-by-an-embedding",)


@pytest.fixture(scope="module")
def server():
    with serving(ABACUS, "--enable-prompt-embeds", "--enable-prompt-tokens-details", "--max-model-len", 2048) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(server):
    return server.post("/tokenize", {"model": "m", "prompt": TEXT})[1]["tokens"]


@pytest.fixture(scope="module")
def table():
    return embedding(ABACUS)


def ask(server, **fields):
    status, answer = server.post("/v1/completions", {"model": "m", "temperature": 0, "max_tokens": 24, "logprobs": 3, **fields})
    assert status == 200, answer
    return answer


def shown(choice):
    """A choice without its offsets, which depend on the prompt's index in the request."""
    return {key: choice[key] for key in ("text", "logprobs", "finish_reason")}


def test_the_rows_of_tokens_are_the_tokens(server, tokens, table):
    width, rows = table
    expected = ask(server, prompt=tokens)
    wide = saved([floats(rows[token]) for token in tokens])
    narrow = saved(b"".join(rows[token] for token in tokens), "BFloat16Storage", [1, len(tokens), width])
    for tensor in (wide, narrow):
        answer = ask(server, prompt_embeds=tensor)
        assert shown(answer["choices"][0]) == shown(expected["choices"][0])
        assert answer["usage"]["prompt_tokens"] == len(tokens)
    assert ask(server, prompt_embeds=wide)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    # A single number of one row differs.
    other = [floats(rows[token]) for token in tokens]
    other[2][5] += 1
    assert shown(ask(server, prompt_embeds=saved(other))["choices"][0]) != shown(expected["choices"][0])
    # Answers to prompts given as embeddings come before those to texts.
    several = ask(server, prompt=[tokens[:5]], prompt_embeds=[wide, narrow])
    assert [shown(choice) for choice in several["choices"][:2]] == [shown(expected["choices"][0])] * 2
    assert shown(several["choices"][2]) == shown(ask(server, prompt=tokens[:5])["choices"][0])


def test_sampling_and_streams(server, tokens, table):
    rows = [floats(table[1][token]) for token in tokens]
    fields = {"temperature": 1, "seed": 3, "n": 2, "repetition_penalty": 1.0}
    expected = ask(server, prompt=tokens, **fields)["choices"]
    got = ask(server, prompt_embeds=saved(rows), **fields)["choices"]
    assert [shown(choice) for choice in got] == [shown(choice) for choice in expected]


def test_what_is_no_tensor_is_refused(server, table):
    width = table[0]
    good = [[0.0] * width] * 3
    for body, words in [({"prompt_embeds": "!"}, "base64"),
                        ({"prompt_embeds": "AAAA"}, "no zip archive"),
                        ({"prompt_embeds": saved([[0.0] * (width + 1)] * 3)}, "[3, %d]" % (width + 1)),
                        ({"prompt_embeds": saved([[float("nan")] * width])}, "not finite"),
                        ({"prompt_embeds": saved(b"\0" * 24, "LongStorage", [3, 1])}, "torch.LongStorage"),
                        ({"prompt_embeds": saved(b"", "FloatStorage", [0, width])}, "contains no rows"),
                        ({"prompt_embeds": base64.b64encode(pickle.dumps(Evil(), protocol=2)).decode()}, "no zip archive"),
                        ({"prompt_embeds": base64.b64encode(archive({"data.pkl": pickle.dumps(Evil(), protocol=2)})).decode()}, "posix.system"),
                        ({"prompt_embeds": base64.b64encode(archive({"data.pkl": pickled("FloatStorage", [2, 2])})).decode()}, "lacks the tensor's numbers"),
                        ({"prompt_embeds": saved(good), "echo": True}, "Echo is unsupported"),
                        ({"prompt_embeds": saved(good), "prompt_logprobs": 1}, "not compatible"),
                        ({"prompt_embeds": saved([[0.0] * width] * 5000)}, "maximum context length")]:
        status, answer = server.post("/v1/completions", {"model": "m", "max_tokens": 1, **body})
        assert status == 400 and words in answer["error"]["message"], answer
    assert server.complete("a")


def test_without_the_option_they_are_refused():
    with serving(ABACUS) as plain:
        status, answer = plain.post("/v1/completions", {"model": "m", "prompt_embeds": "AAAA"})
        assert status == 400 and "You must set `--enable-prompt-embeds`" in answer["error"]["message"]
