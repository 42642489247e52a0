"""The exact requests of known clients, and the routes that they use."""
import json
import os
import re
import subprocess
import sys

import jinja2

from serving import (
    ABACUS,
    BIN,
    PATIENCE_S,
    ROOT,
    command,
    deaf_port,
    events,
    run,
    serving,
    wait_until,
)


def test_lm_eval_generate(abacus):
    body = {"model": "m", "prompt": ["Tom has 3", "Anna has 12"], "max_tokens": 16, "temperature": 0, "stop": ["\n\n", "Question:"],
            "seed": 1234, "do_sample": False, "until": ["x"]}
    status, answer = abacus.post("/v1/completions", body, headers={"Authorization": "Bearer "})
    assert status == 200
    assert [c["index"] for c in answer["choices"]] == [0, 1]


def test_lm_eval_loglikelihood(abacus):
    """lm_eval scores a given text by its echoed logprobs. The answer must have exactly one token after the echo. Whether the text is the
    greedy answer follows from equal logprobs."""
    ids = json.loads(abacus.request("POST", "/tokenize", {"model": "m", "prompt": "Tom has 3 apples."})[2])["tokens"]
    status, answer = abacus.post("/v1/completions", {"model": "m", "prompt": [ids], "temperature": 0, "max_tokens": 1, "logprobs": 1,
                                                     "seed": 1234, "echo": True})
    assert status == 200
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]) == len(ids) + 1
    assert logprobs["token_logprobs"][0] is None
    for token, logprob, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
        assert logprob <= 0 and token in top and top[token] == logprob
        assert max(top.values()) >= logprob
    generated = logprobs["token_logprobs"][-1]
    assert generated == max(logprobs["top_logprobs"][-1].values())


def test_bench_client_stream(abacus):
    body = {"model": "m", "prompt": "Tom has", "repetition_penalty": 1.0, "max_tokens": 10, "logprobs": None, "stream": True,
            "stream_options": {"include_usage": True}, "ignore_eos": True}
    status, headers, raw = abacus.request("POST", "/v1/completions", body)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    parts = events(raw)
    assert parts[-1] == "[DONE]" and parts[-2]["choices"] == [] and parts[-2]["usage"]["completion_tokens"] == 10


def test_tokenize_and_back(abacus):
    for text in ("Tom has 3 apples.", "naïve 🧮 text\n", ""):
        status, answer = abacus.post("/tokenize", {"model": "m", "prompt": text, "add_special_tokens": False})
        assert status == 200 and answer["count"] == len(answer["tokens"])
        assert abacus.post("/detokenize", {"model": "m", "tokens": answer["tokens"]})[1]["prompt"] == text
    lines = run("tokenize", "--model", ABACUS, input='{"text": "Tom has 3", "add_special_tokens": false}\n')
    assert json.loads(lines.stdout)["ids"] == abacus.post("/tokenize", {"model": "m", "prompt": "Tom has 3",
                                                                        "add_special_tokens": False})[1]["tokens"]


def test_render_like_jinja2():
    template = json.loads((ABACUS / "tokenizer_config.json").read_text()).get("chat_template")
    if template is None:
        template = (ABACUS / "chat_template.jinja").read_text()
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"},
                {"role": "user", "content": "and 2 + 2?"}]
    variables = {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    want = environment.from_string(template).render(tools=None, documents=None, **variables)
    result = run("render", "--model", ABACUS, input=json.dumps(variables) + "\n")
    assert json.loads(result.stdout)["text"] == want


def test_routes(abacus):
    assert abacus.get("/health")[0] == 200 and abacus.get("/ping")[0] == 200
    assert json.loads(abacus.get("/version")[1])["version"]
    wait_until(lambda: json.loads(abacus.get("/load")[1])["server_load"] == 0, "requests of earlier tests are still counted")
    assert abacus.get("/v1/models/m")[0] == 200 and abacus.get("/v1/models/other")[0] == 404


def test_metrics_have_the_old_and_the_new_names(abacus):
    abacus.complete("Tom has 3", max_tokens=4)
    text = abacus.get("/metrics")[1].decode()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
                 "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total",
                 "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:request_success_total",
                 "vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket",
                 "vllm:time_per_output_token_seconds_bucket", "vllm:e2e_request_latency_seconds_bucket",
                 "vllm:request_prompt_tokens_bucket", "vllm:iteration_tokens_total_bucket", "vllm:cache_config_info"):
        assert "\n" + name in text, name
    assert 'model_name="m"' in text


def test_api_key_and_names():
    with serving(ABACUS, "--api-key", "secret", "--served-model-name", "m", "other") as server:
        body = {"model": "other", "prompt": "x", "max_tokens": 1}
        assert server.request("POST", "/v1/completions", body)[0] == 401
        assert server.request("POST", "/v1/completions", body, headers={"Authorization": "Bearer wrong"})[0] == 401
        status, _, raw = server.request("POST", "/v1/completions", body, headers={"Authorization": "Bearer secret"})
        assert status == 200 and json.loads(raw)["model"] == "m"
        assert server.get("/health")[0] == 200
        assert "secret" not in server.log()


def test_chat_command(abacus):
    result = run("chat", "--url", abacus.url, "--temperature", 0, "--max-tokens", 20, "--quick", "Tom has 3 apples. How many?")
    assert result.returncode == 0 and result.stdout.strip()
    two = run("chat", "--url", abacus.url, "--temperature", 0, "--max-tokens", 8, input="one\ntwo\n")
    assert two.returncode == 0 and len(two.stdout.splitlines()) >= 2
    assert run("chat", "--url", "http://127.0.0.1:%d" % deaf_port(), "--quick", "x").returncode == 5


def test_chat_and_complete_start_a_model():
    assert run("complete", ABACUS, "--max-tokens", 4, "--temperature", 0, "--quick", "Tom has").returncode == 0
    assert run("chat", ABACUS, "--max-tokens", 4, "--temperature", 0, "--max-model-len", 512, "--quick", "hi").returncode == 0


def test_inspect_and_version():
    assert "LlamaForCausalLM" in run("inspect", ABACUS).stdout
    assert json.loads(run("inspect", ABACUS, "--json").stdout)
    assert json.loads(run("version", "--json").stdout)["version"]
    assert run("help", "serve", "all").stdout.count("--") > 50


def test_output_that_cannot_be_written():
    """Short output fails when it is flushed at the end, long output while it is written."""
    for words in (("version", "--json"), ("explain-options",)):
        with open("/dev/full", "w") as full:
            result = subprocess.run(command(*words), stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
        assert result.returncode == 1 and result.stderr.startswith("error: ") and "No space left" in result.stderr, (words, result)


def test_accuracy_of_the_bundled_model(abacus):
    """A sample of the held-out problems; tools/demo_model measures all of them."""
    result = subprocess.run([sys.executable, ROOT / "tools/demo_model/measure.py", "--url", abacus.url, "--model", "m", "--file",
                             ABACUS / "heldout.jsonl", "--limit", "100", "--at-least", "90"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_demo_begins_with_a_right_answer(tmp_path):
    """The demo first shows a sum that the model solves, then the answer to the recipe's curl command, a tool call, and an answer in a
    schema."""
    result = subprocess.run([ROOT / "tools" / "demo.sh"], capture_output=True, text=True, timeout=PATIENCE_S,
                            env={**os.environ, "SLUICE_BIN": str(BIN), "TMPDIR": str(tmp_path)})
    assert result.returncode == 0, result.stdout + result.stderr
    said = result.stdout
    schema = said.index('"chat.completion"')
    assert 0 < said.index("#### 29") < said.index('"text_completion"') < said.index('call calculator({"expression": " 13 + 24 - 8"})') < schema
    completion = json.JSONDecoder().raw_decode(said, said.rindex('{"id"', 0, schema))[0]
    assert json.loads(completion["choices"][0]["message"]["content"])["answer"] == 29
    steps = re.search(r"^\d+ tokens in \d+ steps, ([\d.]+) a step: the drafting head", said[schema:], re.M)
    assert float(steps.group(1)) >= 2, said
