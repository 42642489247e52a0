"""The real lm_eval, called as in the recipes, and `sluice eval` on the same questions."""
import json
import os
import subprocess

import pytest

from serving import ABACUS, DATA, PATIENCE_S, ROOT, run, serving

LM_EVAL = ROOT / ".venv-lm-eval" / "bin" / "lm_eval"
MODEL = "nvidia/Llama-3.3-70B-Instruct-FP8"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NUM_SUMS = 300  # more than the 256 prompts that one request of a recipe contains
NUM_CHOICES = 40


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def number_of(row):
    return int(row["answer"].rsplit("#### ", 1)[1])


def choice_row(index, row):
    """A question with two possible answers. In every second row, the first answer is correct."""
    steps = row["answer"].rsplit("#### ", 1)[0]
    right, wrong = (" %s#### %d" % (steps, n) for n in (number_of(row), number_of(row) + 1))
    return {"question": row["question"], "choices": [wrong, right] if index % 2 else [right, wrong], "label": index % 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Tasks with their data, and a Hugging Face cache that contains the recipe's model id."""
    folder = tmp_path_factory.mktemp("lm_eval")
    rows = [json.loads(line) for line in (ABACUS / "heldout.jsonl").read_text().splitlines()][:NUM_SUMS]
    write_lines(folder / "sums.jsonl", rows)
    write_lines(folder / "mc.jsonl", [choice_row(i, row) for i, row in enumerate(rows[:NUM_CHOICES])])
    write_lines(folder / "ppl.jsonl", [{"text": row["question"] + " " + row["answer"]} for row in rows[:10]])
    for task in (DATA / "lm_eval").glob("*.yaml"):
        (folder / task.name).write_text(task.read_text().replace("DATA/", str(folder) + "/"))
    repo = folder / "hf" / "hub" / ("models--" + MODEL.replace("/", "--"))
    (repo / "refs").mkdir(parents=True)
    (repo / "snapshots").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "snapshots" / COMMIT).symlink_to(ABACUS)
    return folder


@pytest.fixture(scope="module")
def server():
    with serving(ABACUS, "--max-model-len", 4096, name=MODEL) as running:
        yield running


class Outcome:
    """The files that a run of lm_eval wrote."""

    def __init__(self, folder):
        self.results = json.loads(next(folder.rglob("results_*.json")).read_text())["results"]
        self.samples = [json.loads(line) for path in folder.rglob("samples_*.jsonl") for line in path.read_text().splitlines()]

    def scores(self, task):
        return {key: value for key, value in self.results[task].items() if key.startswith("exact_match")}


def lm_eval(place, name, *words):
    out = place / name
    environment = {**os.environ, "HF_HOME": str(place / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                   "TRANSFORMERS_OFFLINE": "1"}
    result = subprocess.run([LM_EVAL, *words, "--include_path", place, "--log_samples", "--output_path", out], cwd=place,
                            env=environment, capture_output=True, text=True, timeout=3 * PATIENCE_S)
    assert result.returncode == 0, result.stderr[-3000:]
    return Outcome(out)


def sluice_eval(place, server, *words):
    out = place / "sluice.json"
    samples = place / "sluice.jsonl"
    result = run("eval", place / "sums.jsonl", "--base-url", server.url + "/v1/completions", "--model", MODEL, "--output-path", out,
                 "--log-samples", samples, *words)
    assert result.returncode == 0, result.stderr
    return (json.loads(out.read_text())["results"]["gsm8k-style"], [json.loads(line) for line in samples.read_text().splitlines()])


def same_scores(theirs, ours):
    intervals = {key for key in ours if key.startswith("exact_match_confidence95")}  # lm_eval has no such entries
    assert set(theirs) == {key for key in ours if key.startswith("exact_match")} - intervals
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(value, abs=1e-12), key


def prompts_of(samples):
    """The prompts that lm_eval sent, in the order of the questions; a conversation is JSON inside a list."""
    ordered = sorted((s for s in samples if s["filter"] == "strict-match"), key=lambda s: s["doc_id"])
    prompts = [sample["arguments"]["gen_args_0"]["arg_0"] for sample in ordered]
    return [prompt[0] if isinstance(prompt, list) else prompt for prompt in prompts]


def test_generation_as_vllm_recipes_call_it(place, server):
    """Recipes 000 and 004: texts as prompts, no tokenizer, 128 concurrent requests."""
    outcome = lm_eval(place, "recipe-000", "--model", "local-completions", "--tasks", "abacus_sums", "--model_args",
                      "base_url=%s/v1/completions,model=%s,tokenized_requests=False,tokenizer_backend=None,num_concurrent=128,"
                      "timeout=120,max_retries=5" % (server.url, MODEL))
    ours, samples = sluice_eval(place, server, "--num-fewshot", 2)
    assert ours["exact_match,strict-match"] > 0.85
    same_scores(outcome.scores("abacus_sums"), ours)
    assert prompts_of(outcome.samples) == [sample["prompt"] for sample in samples]


@pytest.mark.slow
def test_generation_as_the_trtllm_recipe_calls_it(place, server):
    """Recipe 001: batches of 256 prompts in one request, five examples, without special tokens."""
    before = server.metric("vllm:request_success_total")
    outcome = lm_eval(place, "recipe-001", "--model", "local-completions", "--tasks", "abacus_sums", "--batch_size", "256",
                      "--gen_kwargs", "temperature=0.0,add_special_tokens=False", "--num_fewshot", "5", "--model_args",
                      "model=%s,base_url=%s/v1/completions,num_concurrent=32,max_retries=20,tokenized_requests=False"
                      % (MODEL, server.url))
    assert server.metric("vllm:request_success_total") - before == NUM_SUMS
    ours, samples = sluice_eval(place, server, "--num-fewshot", 5, "--no-add-special-tokens")
    same_scores(outcome.scores("abacus_sums"), ours)
    assert prompts_of(outcome.samples) == [sample["prompt"] for sample in samples]


def test_loglikelihoods_as_the_amd_recipe_calls_it(place, server):
    """Recipe 003: token ids as prompts, a hundred per request, echoed with their logprobs."""
    outcome = lm_eval(place, "recipe-003", "--model", "local-completions", "--tasks", "abacus_mc,abacus_ppl", "--model_args",
                      "model=%s,base_url=%s/v1/completions" % (MODEL, server.url), "--batch_size", "100")
    assert outcome.results["abacus_mc"]["acc,none"] > 0.9
    assert 1 < outcome.results["abacus_ppl"]["word_perplexity,none"] < 100
    # The sum of the first question's logprobs is the same with one prompt per request.
    sample = next(s for s in outcome.samples if "choices" in s["doc"] and s["doc_id"] == 0)
    for resp, choice in zip(sample["resps"], sample["doc"]["choices"]):
        context = "Question: %s\nAnswer:" % sample["doc"]["question"]
        ids, context_ids = ([] for _ in range(2))
        for text, into in ((context + choice, ids), (context, context_ids)):
            into += server.post("/tokenize", {"model": MODEL, "prompt": text, "add_special_tokens": False})[1]["tokens"]
        logprobs = server.complete(ids, model=MODEL, max_tokens=1, logprobs=1, echo=True)["logprobs"]
        total = sum(logprobs["token_logprobs"][len(context_ids):-1])
        assert float(resp[0][0]) == pytest.approx(total, abs=1e-9)


def test_chat(place, server):
    outcome = lm_eval(place, "chat", "--model", "local-chat-completions", "--tasks", "abacus_sums", "--num_fewshot", "1",
                      "--apply_chat_template", "--model_args",
                      "model=%s,base_url=%s/v1/chat/completions,num_concurrent=128" % (MODEL, server.url))
    ours, samples = sluice_eval(place, server, "--num-fewshot", 1, "--apply-chat-template")
    assert ours["exact_match,strict-match"] > 0.9
    same_scores(outcome.scores("abacus_sums"), ours)
    assert [json.loads(prompt) for prompt in prompts_of(outcome.samples)] == [sample["prompt"] for sample in samples]
