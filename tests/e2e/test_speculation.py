"""Draft tokens: a step may produce more than one token, and the answers do not change."""
import json
import re
import shutil

import pytest

from serving import ABACUS, DATA, run, serving

PROMPTS = ["Tom has 3 apples. Tom has 3 apples. Tom has 3", "12 + 30 = 42\n12 + 30 = 42\n12 + 30 ="]
ASKED = [
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.8, "seed": 7, "n": 2},
    {"temperature": 0.8, "seed": 8, "repetition_penalty": 1.1},
    {"temperature": 0, "stop": ["."], "ignore_eos": False},
    {"temperature": 0, "ignore_eos": False},
]
LLAMA, QWEN = DATA / "checkpoints" / "llama-bf16", DATA / "checkpoints" / "qwen3-bf16"
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
    """The texts of a stream, per event."""
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


def draft(model, **keys):
    return json.dumps({"method": "draft_model", "model": str(model), "num_speculative_tokens": 4, **keys})


def drafts(server):
    return [server.metric("vllm:spec_decode_num_%s_total" % name) for name in ("draft_tokens", "accepted_tokens")]


def test_a_draft_of_the_same_weights_is_always_right(expected):
    """A draft is rejected only where the answer ends first, or where a constraint requires another token."""
    with serving(ABACUS, "--speculative-config", draft(ABACUS, adaptive=False)) as server:
        assert answers(server) == expected
        proposed, accepted = drafts(server)
        assert proposed > 300 and accepted > 0.9 * proposed
        assert re.search(r" draft +\S+ MiB  .* of weights, .* of workspace, .* of KV cache: \d+ tokens$", server.log(), re.M)


def test_a_draft_that_is_asked_only_where_it_pays_changes_nothing(expected):
    """How often the draft is used depends on the machine's load, so only unit tests of the policy check it."""
    with serving(ABACUS, "--spec-model", ABACUS, "--spec-tokens", "4") as server:
        assert answers(server) == expected


@pytest.mark.parametrize("flags", [[], ["--max-num-batched-tokens", "32", "--max-num-seqs", "4"], ["--no-enable-prefix-caching"],
                                   ["--data-parallel-size", "2"], ["--pipeline-parallel-size", "2"], ["--tensor-parallel-size", "2", "--tensor-parallel-mode", "exact"]])
def test_a_draft_of_another_model_changes_nothing(flags):
    constrained = {"temperature": 0, "ignore_eos": False, "structured_outputs": {"json": {"type": "array", "items": {"type": "integer"}}}}

    def constrained_answer(server):
        body = {"model": "m", "prompt": PROMPTS[1], "max_tokens": 40, **constrained}
        status, answer = server.post("/v1/completions", body)
        assert status == 200, answer
        return answer["choices"]

    with serving(LLAMA) as plain:
        expected = answers(plain), constrained_answer(plain)
    with serving(LLAMA, "--speculative-config", draft(QWEN, adaptive=False), *flags) as server:
        assert (answers(server), constrained_answer(server)) == expected
        proposed, accepted = drafts(server)
        assert proposed > 300 and accepted < 0.5 * proposed


def test_the_head_of_the_bundled_model(expected):
    """With the draft head, problems take less than half as many steps as tokens, and the answers are the same."""
    head = {"method": "eagle3", "model": str(ABACUS.with_name("abacus-eagle3")), "num_speculative_tokens": 3, "adaptive": False}
    questions = [json.loads(line)["question"] for line in (ABACUS / "heldout.jsonl").read_text().splitlines()[:30]]

    def solve(server):
        found = []
        for question in questions:
            body = {"model": "m", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 160}
            status, answer = server.post("/v1/chat/completions", body)
            assert status == 200, answer
            found.append((answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]))
        return found

    with serving(ABACUS) as plain:
        solved = solve(plain)
    with serving(ABACUS, "--speculative-config", json.dumps(head)) as server:
        assert answers(server) == expected
        before = drafts(server)[1]
        assert solve(server) == solved
        tokens = sum(count for _, count in solved)
        assert tokens / (tokens - (drafts(server)[1] - before)) > 2


def test_the_draft_of_trtllm_serve(tmp_path, expected):
    options = tmp_path / "extra.yaml"
    options.write_text("speculative_config:\n  decoding_type: Draft_Target\n  max_draft_len: 3\n  adaptive: false\n"
                       "  speculative_model_dir: %s\n" % ABACUS)
    with serving(ABACUS, program="trtllm-serve") as plain, serving(ABACUS, "--extra_llm_api_options", options, program="trtllm-serve") as server:
        assert answers(server) == answers(plain)
        found = re.search(r"^vllm:spec_decode_num_accepted_tokens_total{.*} (.*)$", server.get("/prometheus/metrics")[1].decode(), re.M)
        assert float(found.group(1)) > 100


def test_drafts_of_another_vocabulary_are_refused(tmp_path):
    refused = run("serve", ABACUS, "--port", 0, "--speculative-config", draft(LLAMA))
    assert refused.returncode == 2 and "has a different vocabulary from the model in" in refused.stderr, refused
    other = tmp_path / "other"
    shutil.copytree(ABACUS, other)
    (other / "tokenizer.json").unlink()
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + 64}))
    refused = run("serve", ABACUS, "--port", 0, "--speculative-config", draft(other))
    assert refused.returncode != 0 and "its vocabulary has %d tokens, but that of the model in" % (config["vocab_size"] + 64) in refused.stderr, refused
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (ABACUS / name).read_text()
        (other / name).write_text(text.replace("<|start_header_id|>", "<|another|>"))
    refused = run("serve", ABACUS, "--port", 0, "--speculative-config", draft(other))
    words = r'token 1010 is "<\|another\|>" in the draft model and "<\|start_header_id\|>" in the model'
    assert refused.returncode == 2 and re.search(words, refused.stderr), refused


def test_other_methods_are_told(abacus):
    config = '{"method": "medusa", "model": "org/draft", "num_speculative_tokens": 3}'
    with serving(ABACUS, "--speculative-config", config) as server:
        assert "medusa (it has a head for each of the next tokens) is not a supported method" in server.log()
        assert "spec_decode" not in server.get("/metrics")[1].decode()


def test_layers_that_a_model_has_not_are_told():
    with serving(ABACUS, "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}') as server:
        assert "has no layers that propose tokens" in server.log()
        assert "spec_decode" not in server.get("/metrics")[1].decode()


def token_ids(server):
    body = {"model": "m", "prompt": list(range(3, 40)), "max_tokens": 60, "temperature": 0, "ignore_eos": True, "logprobs": 0,
            "return_tokens_as_token_ids": True}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["logprobs"]["tokens"]


def write_tokenizer(folder):
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": None, "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                                   "fuse_unk": False, "byte_fallback": False, "vocab": {chr(0x100 + i): i for i in range(128)}, "merges": []}}))


@pytest.mark.parametrize("model, config", [
    ("tiny-eagle3-target", {"method": "eagle3", "model": str(DATA / "checkpoints" / "tiny-eagle3")}),
    ("tiny-eagle3-target", {"model": str(DATA / "checkpoints" / "tiny-eagle3-speculators")}),  # its config.json names the method
    ("tiny-eagle3-target", {"method": "dflash", "model": str(DATA / "checkpoints" / "tiny-dflash")}),
    ("tiny-mtp-deepseek", {"method": "deepseek_mtp"}),
])
def test_drafting_heads_change_nothing(model, config, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DATA / "checkpoints" / model / name, tmp_path)
    write_tokenizer(tmp_path)
    words = (tmp_path,)
    with serving(*words) as plain, serving(*words, "--speculative-config", json.dumps({**config, "num_speculative_tokens": 3, "adaptive": False})) as server:
        assert token_ids(server) == token_ids(plain)
        proposed, accepted = drafts(server)
        assert proposed > 50 and 0 <= accepted < proposed


@pytest.mark.parametrize("words", [("--device", "emulated", "--batch-invariant"), ("--pipeline-parallel-size", 2)])
def test_a_drafting_head_proposes_there(words, tmp_path):
    folder = DATA / "checkpoints"
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / "tiny-eagle3-target" / name, tmp_path)
    write_tokenizer(tmp_path)
    head = json.dumps({"method": "eagle3", "model": str(folder / "tiny-eagle3"), "num_speculative_tokens": 3, "adaptive": False})
    words = (tmp_path, *words)
    with serving(*words) as plain, serving(*words, "--speculative-config", head) as server:
        assert token_ids(server) == token_ids(plain)
        proposed, accepted = drafts(server)
        assert proposed > 50 and 0 < accepted < proposed


@pytest.mark.parametrize("config, words", [
    ('{"method": "ngram"}', "num_speculative_tokens is missing"),
    ('{"method": "ngram", "num_speculative_tokens": 0}', "num_speculative_tokens: expected a whole number in [1, 64], found 0"),
    ('{"method": "ngram", "num_speculative_tokens": "4"}', 'num_speculative_tokens: expected a whole number in [1, 64], found "4"'),
    ('{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 5, "prompt_lookup_max": 2}',
     "prompt_lookup_min is 5, more than prompt_lookup_max, 2"),
    ('{"method": "draft_model", "num_speculative_tokens": 4}', "model is missing: give the folder or id of a draft model"),
    (draft(ABACUS, num_speculative_tokens=None), "num_speculative_tokens is missing"),
    (draft(ABACUS, max_model_len=1000000), "max_model_len of the draft model (1000000) is larger than max_position_embeddings ("),
    (draft(ABACUS, adaptive=3), "adaptive: expected true or false, found 3"),
    ('{"method": 7}', "method: expected a text, found 7"),
    ('{"method": "suffix", "suffix_decoding_min_token_prob": 2}', "suffix_decoding_min_token_prob: expected a number in [0, 1], found 2"),
])
def test_what_is_wrong_is_refused_by_name(config, words):
    result = run("serve", ABACUS, "--port", 0, "--speculative-config", config)
    assert result.returncode == 2 and words in result.stderr, result


def test_a_draft_that_is_not_there_is_refused_as_a_model_is():
    result = run("serve", ABACUS, "--port", 0, "--speculative-config", draft(DATA / "nothing-here"))
    assert result.returncode == 3 and "nothing-here" in result.stderr, result
