"""logprob_token_ids: the logprobs of listed tokens are bit-identical to those that top logprobs report for the same tokens."""
import pytest

from serving import ABACUS, events, serving

PROMPT = "Tom has 3 apples and buys 4 more. How many apples has Tom?"


@pytest.fixture(scope="module")
def server():
    with serving(ABACUS, "--max-logprobs", -1, "--enable-scale-out") as running:
        yield running


def ask(server, path="/v1/completions", **fields):
    status, answer = server.post(path, {"model": "m", "temperature": 0, "max_tokens": 12, "return_tokens_as_token_ids": True, **fields})
    assert status == 200, answer
    return answer["choices"][0]["logprobs"]


def test_they_are_those_of_the_whole_vocabulary(server):
    whole = ask(server, prompt=PROMPT, logprobs=-1)
    listed = [7, 300, 5]
    got = ask(server, prompt=PROMPT, logprobs=1, logprob_token_ids=listed)
    assert got["tokens"] == whole["tokens"] and got["token_logprobs"] == whole["token_logprobs"]
    for token, entries, all_entries in zip(got["tokens"], got["top_logprobs"], whole["top_logprobs"], strict=True):
        names = [token] + [name for name in ("token_id:%d" % i for i in listed) if name != token]
        assert list(entries) == names
        assert entries == {name: all_entries[name] for name in names}


def test_chat_and_streams(server):
    chat = {"messages": [{"role": "user", "content": PROMPT}], "logprobs": True, "logprob_token_ids": [5, 300]}
    whole = ask(server, "/v1/chat/completions", **chat)["content"]
    best = ask(server, "/v1/chat/completions", **{**chat, "logprob_token_ids": None, "top_logprobs": -1})["content"]
    for entry, reference in zip(whole, best, strict=True):
        known = {top["token"]: top["logprob"] for top in reference["top_logprobs"]}
        names = [entry["token"]] + [name for name in ("token_id:5", "token_id:300") if name != entry["token"]]
        assert [top["token"] for top in entry["top_logprobs"]] == names
        assert all(top["logprob"] == known[top["token"]] for top in entry["top_logprobs"])
    for path, body in (("/v1/chat/completions", chat), ("/v1/completions", {"prompt": PROMPT, "logprobs": 0, "logprob_token_ids": [5, 300]})):
        expected = ask(server, path, **body)
        sent = events(server.request("POST", path, {"model": "m", "temperature": 0, "max_tokens": 12, "return_tokens_as_token_ids": True,
                                                    "stream": True, **body})[2])
        parts = [part["choices"][0]["logprobs"] for part in sent[:-1] if part["choices"] and part["choices"][0].get("logprobs")]
        for key in expected:
            if expected[key] is not None and key != "text_offset":
                assert [value for part in parts for value in part[key]] == expected[key], key


def test_generate_takes_them(server):
    tokens = server.post("/tokenize", {"model": "m", "prompt": PROMPT})[1]["tokens"]
    status, answer = server.post("/inference/v1/generate", {"token_ids": tokens, "sampling_params": {
        "temperature": 0, "max_tokens": 3, "logprobs": 1, "logprob_token_ids": [9, 8]}})
    assert status == 200, answer
    for entry in answer["choices"][0]["logprobs"]["content"]:
        assert [top["token_id"] for top in entry["top_logprobs"]] == [entry["token_id"], 9, 8]


def test_the_list_is_bounded_and_in_the_vocabulary(server):
    for ids, words in [([], "must not be an empty list"), ([10**6], "out-of-vocab"), ([-1], "out-of-vocab"), (list(range(3, 132)), "at most 128"), (["x"], "integer"), ([2**64], "integer of 64 bits")]:
        status, answer = server.post("/v1/completions", {"model": "m", "prompt": "a", "logprobs": 1, "logprob_token_ids": ids})
        assert status == 400 and words in answer["error"]["message"], answer
    assert len(ask(server, prompt="a", logprobs=1, logprob_token_ids=list(range(3, 131)), max_tokens=1)["top_logprobs"][0]) >= 128
