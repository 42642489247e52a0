"""Proposed tokens: more than one a step, and never others."""
import json
import re

import pytest

from serving import ABACUS, run, serving

PROMPTS = ["Tom has 3 apples. Tom has 3 apples. Tom has 3", "12 + 30 = 42\n12 + 30 = 42\n12 + 30 ="]
ASKED = [
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.8, "seed": 7, "n": 2},
    {"temperature": 0.8, "seed": 8, "repetition_penalty": 1.1},
    {"temperature": 0, "stop": ["."], "ignore_eos": False},
    {"temperature": 0, "ignore_eos": False},
]
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 5}'


def answers(server):
    found = []
    for prompt in PROMPTS:
        for fields in ASKED:
            status, answer = server.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 60, "ignore_eos": True, **fields})
            assert status == 200, answer
            found.append((answer["choices"], answer["usage"]))
    return found


def events(server):
    """The texts of a stream, event by event."""
    status, _, body = server.request("POST", "/v1/completions", {"model": "m", "prompt": PROMPTS[0], "max_tokens": 60, "ignore_eos": True,
                                                              "temperature": 0, "stream": True})
    assert status == 200, body
    lines = [line[len("data: "):] for line in body.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(line)["choices"][0]["text"] for line in lines]


@pytest.fixture(scope="module")
def expected(abacus):
    return answers(abacus)


@pytest.mark.parametrize("flags", [
    ["--speculative-config", NGRAM],
    ["-sc", '{"method": "suffix", "suffix_decoding_max_spec_factor": 2.0}'],
    ["--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens", "12"],
    ["--spec-method", "ngram", "--spec-tokens", "3"],
])
def test_answers_are_those_without(expected, flags):
    with serving(ABACUS, *flags) as server:
        assert answers(server) == expected
        drafts, proposed, accepted = (server.metric("vllm:spec_decode_num_%s_total" % name)
                                      for name in ("drafts", "draft_tokens", "accepted_tokens"))
        assert 0 < accepted <= proposed and drafts <= proposed
        metrics = server.get("/metrics")[1].decode()
        by_place = [float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines()
                    if line.startswith("vllm:spec_decode_num_accepted_tokens_per_pos_total{")]
        assert sum(by_place) == accepted and by_place == sorted(by_place, reverse=True)


def test_the_file_of_trtllm_serve(tmp_path):
    options = tmp_path / "extra.yaml"
    options.write_text("speculative_config:\n  decoding_type: NGram\n  max_draft_len: 4\n  max_matching_ngram_size: 2\n")
    with serving(ABACUS, program="trtllm-serve") as plain, serving(ABACUS, "--extra_llm_api_options", options, program="trtllm-serve") as server:
        assert answers(server) == answers(plain)
        drafts = re.search(r"^vllm:spec_decode_num_accepted_tokens_total{.*} (.*)$", server.get("/prometheus/metrics")[1].decode(), re.M)
        assert float(drafts.group(1)) > 0


def test_streams_have_the_same_text(abacus):
    with serving(ABACUS, "--speculative-config", NGRAM) as server:
        texts = [events(where) for where in (abacus, server)]
    assert "".join(texts[0]) == "".join(texts[1])
    assert len(texts[1]) < len(texts[0]), "a step's tokens come together"


def test_other_methods_are_told(abacus):
    config = '{"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}'
    with serving(ABACUS, "--speculative-config", config) as server:
        assert "eagle3 is not a method of this program" in server.log()
        assert "spec_decode" not in server.get("/metrics")[1].decode()


@pytest.mark.parametrize("config, words", [
    ('{"method": "ngram"}', "num_speculative_tokens is missing"),
    ('{"method": "ngram", "num_speculative_tokens": 0}', "num_speculative_tokens: expected a whole number in [1, 64], found 0"),
    ('{"method": "ngram", "num_speculative_tokens": "4"}', 'num_speculative_tokens: expected a whole number in [1, 64], found "4"'),
    ('{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 5, "prompt_lookup_max": 2}',
     "prompt_lookup_min is 5, more than prompt_lookup_max, 2"),
    ('{"method": 7}', "method: expected a text, found 7"),
    ('{"method": "suffix", "suffix_decoding_min_token_prob": 2}', "suffix_decoding_min_token_prob: expected a number in [0, 1], found 2"),
])
def test_what_is_wrong_is_refused_by_name(config, words):
    result = run("serve", ABACUS, "--port", 0, "--speculative-config", config)
    assert result.returncode == 2 and words in result.stderr, result
