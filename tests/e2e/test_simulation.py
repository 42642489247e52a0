"""`serve --simulate`, `plan` and `fit`. The server has no weights; its steps take the time that another machine would need."""
import json
import re
import shutil
import time

import pytest

from serving import ABACUS, DATA, at_once, run, serving

LLAMA = DATA / "simulation" / "llama-70b-fp8"


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A folder with the configuration of Llama 70B in FP8 and a small tokenizer, without weights."""
    folder = tmp_path_factory.mktemp("llama")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        if (ABACUS / name).exists():
            shutil.copy(ABACUS / name, folder / name)
    small = json.loads((ABACUS / "config.json").read_text())
    config = json.loads((LLAMA / "config.json").read_text())
    for key in ("vocab_size", "bos_token_id", "eos_token_id"):
        config[key] = small.get(key)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def server(llama):
    with serving(llama, "--simulate", "H200x2", "--simulate-speed", 10, "--max-model-len", 4096) as started:
        yield started


def test_answers_say_that_they_are_simulated(server):
    status, headers, body = server.request("POST", "/v1/completions", {"model": "m", "prompt": "1+1=", "max_tokens": 5})
    answer = json.loads(body)
    assert status == 200, answer
    assert headers["x-sluice-simulated"] == "H200x2"
    assert answer["usage"]["simulated"] == "H200x2" and answer["usage"]["completion_tokens"] == 5
    assert answer["system_fingerprint"] == "simulated-H200x2"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert "SIMULATED H200x2 at 10 times its speed" in server.log()
    assert "(simulated H200x2)" in server.log()
    assert 'sluice:simulation_info{devices="H200x2",speed="10"} 1' in server.get("/metrics")[1].decode()
    assert server.request("GET", "/v1/models")[1]["x-sluice-simulated"] == "H200x2"


def test_a_stream_says_so_in_its_usage(server):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "stream": True,
            "stream_options": {"include_usage": True}}
    status, headers, text = server.request("POST", "/v1/chat/completions", body)
    assert status == 200 and headers["x-sluice-simulated"] == "H200x2"
    events = [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: {")]
    assert events[-1]["usage"]["simulated"] == "H200x2"


def test_other_apis_say_so_in_their_usage(server):
    message = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    assert server.post("/v1/messages", message)[1]["usage"]["simulated"] == "H200x2"
    text = server.request("POST", "/v1/messages", {**message, "stream": True})[2].decode()
    assert text.count('"simulated":"H200x2"') == 2  # message_start, message_delta
    asked = {"model": "m", "input": "hi", "max_output_tokens": 4}
    assert server.post("/v1/responses", asked)[1]["usage"]["simulated"] == "H200x2"
    assert '"simulated":"H200x2"' in server.request("POST", "/v1/responses", {**asked, "stream": True})[2].decode()


def test_the_same_request_gets_the_same_tokens(server):
    body = {"model": "m", "prompt": "12+34=", "max_tokens": 20, "temperature": 1, "seed": 7, "logprobs": 0}
    first, again = (server.post("/v1/completions", body)[1]["choices"][0] for _ in range(2))
    assert first["text"] == again["text"]
    other = server.post("/v1/completions", {**body, "seed": 8})[1]["choices"][0]
    assert other["text"] != first["text"]


def test_constraints_are_respected(server):
    choice = server.complete("Is it?", max_tokens=20, structured_outputs={"choice": ["yes", "no"]})
    assert choice["text"] in ("yes", "no") and choice["finish_reason"] == "stop"


def test_steps_take_the_time_of_the_device(server):
    # A step reads 70 GB in two halves at 4.8 TB/s. With 80 layers and the host's part it takes 11 to 16 ms; this
    # simulation runs ten times as fast. On a busy machine a step takes longer.
    start = time.monotonic()
    server.complete("1", max_tokens=201, ignore_eos=True)
    assert time.monotonic() - start > 0.2


def test_blocks_are_what_the_memory_leaves(server):
    # Two devices of 150 GB: 276 GB minus 73 GB of weights, with 163,840 bytes per token.
    tokens = int([line for line in server.log().splitlines() if "KV cache size:" in line][0].split("KV cache size: ")[1].split()[0])
    assert 1.0e6 < tokens < 1.3e6


def test_bench_serve_measures_the_device(server, llama, tmp_path):
    done = run("bench", "serve", "--port", server.port, "--model", "m", "--tokenizer", ABACUS, "--dataset-name", "random",
               "--random-input-len", 200, "--random-output-len", 100, "--num-prompts", 16, "--max-concurrency", 8, "--ignore-eos",
               "--save-result", "--result-dir", tmp_path, "--result-filename", "r.json", program="vllm")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["completed"] == 16
    # The device's TPOT is about 13 ms; this simulation runs ten times as fast. On a busy machine it takes
    # longer.
    assert result["mean_tpot_ms"] > 0.8
    fitted = run("fit", tmp_path / "r.json", "--like", "H200", "--model", LLAMA, "--tensor-parallel-size", 2, "--name", "Ten",
                 "--output", tmp_path / "ten.yaml")
    assert fitted.returncode == 0, fitted.stderr
    assert 'name: "Ten"' in (tmp_path / "ten.yaml").read_text()
    checked = run("serve", llama, "--simulate", "%s/ten.yamlx2" % tmp_path, "--max-model-len", 4096, "--check")
    assert checked.returncode == 0, checked.stderr


def test_adapters_are_read_and_named():
    base, adapter = DATA / "checkpoints" / "qwen3-bf16", DATA / "adapters" / "qwen3-linear"
    with serving(base, "--simulate", "H200", "--max-model-len", 256, "--enable-lora", "--lora-modules", "linear=%s" % adapter) as server:
        for name in ("m", "linear"):
            status, answer = server.post("/v1/completions", {"model": name, "prompt": "hello", "max_tokens": 4, "logprobs": 2})
            assert status == 200 and answer["model"] == name, answer
            assert all(value < 0 for value in answer["choices"][0]["logprobs"]["token_logprobs"])


def test_a_full_cache_preempts_and_schemas_hold(llama):
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
    with serving(llama, "--simulate", "B200", "--simulate-speed", 100, "--max-model-len", 2048, "--kv-cache-memory-bytes", "500MiB",
                 "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}') as server:
        jobs = [{"model": "m", "prompt": "1 + %d" % i, "max_tokens": 300, "temperature": i % 2} for i in range(48)]
        done = at_once([lambda body=body: server.post("/v1/completions", body) for body in jobs])
        assert all(status == 200 and answer["usage"]["completion_tokens"] == 300 for status, answer in done)
        assert server.metric("vllm:num_preemptions_total") > 0
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1000,
                "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
        choice = server.post("/v1/chat/completions", body)[1]["choices"][0]
        assert choice["finish_reason"] == "stop" and isinstance(json.loads(choice["message"]["content"])["x"], int)


def test_answers_end_by_themselves_after_the_mean_length(llama):
    with serving(llama, "--simulate", "H200x4", "-tp", 2, "-pp", 2, "--simulate-output-len", 20, "--simulate-speed", 50,
                 "--max-model-len", 2048) as server:
        choices = [server.complete("p%d" % i, max_tokens=1000, temperature=1, seed=i) for i in range(20)]
        assert all(choice["finish_reason"] == "stop" for choice in choices)


def test_engines_of_data_parallelism_have_devices_of_their_own(llama):
    """Two engines on twice the devices: each has the same cache as one engine, and two steps run at a time."""
    flags = ("--simulate-speed", 20, "--max-model-len", 4096)
    with serving(llama, "--simulate", "H200x2", *flags) as one, serving(llama, "--simulate", "H200x4", "-dp", 2, *flags) as two:
        blocks = [re.search(r"KV cache size: (\d+) tokens", server.log())[1] for server in (one, two)]
        assert blocks[0] == blocks[1], (blocks, two.log())
        assert "engines 0 to 1 divide the requests" in two.log()
        at_once([lambda i=i: two.complete("p%d" % i, max_tokens=20) for i in range(8)])
        counted = [float(line.rsplit(" ", 1)[1]) for line in two.get("/metrics")[1].decode().splitlines()
                   if line.startswith("vllm:generation_tokens_total{")]
        assert len(counted) == 2 and all(counted) and sum(counted) == 160, counted


def refused(*words):
    done = run("serve", *words)
    assert done.returncode != 0
    return done.stderr


def test_bad_devices_are_named(llama, tmp_path):
    assert "expected one of H100, H200, B200" in refused(llama, "--simulate", "H300x8")
    assert "lower them" in refused(llama, "--simulate", "H200x2", "-tp", 4)
    assert "make 4 ranks" in refused(llama, "--simulate", "H200x2", "-tp", 2, "-dp", 2)
    assert "omit --device" in refused(llama, "--simulate", "H200", "--device", "cpu")
    file = tmp_path / "d.yaml"
    file.write_text("name: x\nlike: H200\nmemory: -1\n")
    assert "memory" in refused(llama, "--simulate", file)
    file.write_text("name: x\nmemory: 1e12\nbandwidth: 1e12\nbf16_flops: 1e15\n")
    assert "like or factors" in refused(llama, "--simulate", file)
    assert "weights take" in refused(llama, "--simulate", "L40S")


def trace_of(folder, count=60, gap_ms=300):
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps({"timestamp": gap_ms * i, "input_length": 1000, "output_length": 100, "hash_ids": [i, i + 1]}) + "\n"
                            for i in range(count)))
    return file


def test_plan_lists_the_cheapest_first(llama, tmp_path):
    trace = trace_of(tmp_path)
    words = ("plan", llama, "--trace", trace, "--slo", "ttft=0.5,tpot=0.03", "--devices", "H200", "B200", "L40S", "--price", "H200=3.5",
             "B200=6", "--max-devices", 4)
    done = run(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(done.stdout)
    prices = [row["price_per_hour"] for row in plan["deployments"] if row["price_per_hour"] is not None]
    assert prices and prices == sorted(prices)
    for row in plan["deployments"]:
        assert row["kept_share"] >= 0.9 and row["ttft_seconds"] <= 0.5 and row["tpot_seconds"] <= 0.03
        assert 0 < row["relative_error"] < 1
    table = run(*words)
    assert "price/h" in table.stdout and "H200" in table.stdout


def test_plan_reads_sharegpt_with_a_rate(llama, tmp_path):
    file = tmp_path / "chats.json"
    turns = [{"from": "human", "value": "what is the sum of 12 and 30? " * 4}, {"from": "gpt", "value": "the sum is 42. " * 3}]
    file.write_text(json.dumps([{"conversations": turns}] * 20))
    words = ("plan", llama, "--trace", file, "--slo", "ttft=0.3,tpot=0.03", "--devices", "H200")
    assert "the number of requests per second" in run(*words).stderr
    done = run(*words, "--request-rate", 2)
    assert done.returncode == 0 and "20 requests" in done.stdout, done.stdout + done.stderr


def test_plan_says_what_is_wrong(llama, tmp_path):
    trace = trace_of(tmp_path)
    none = run("plan", llama, "--trace", trace, "--slo", "ttft=0.000001", "--devices", "H200", "--max-devices", 1)
    assert none.returncode == 1 and "no deployment keeps it" in none.stdout and "too slow" in none.stdout
    for words, what in [(("--slo", "ttft=x"), "NAME=NUMBER"), (("--slo", "itl=1"), "expected ttft and tpot"),
                        (("--slo", "ttft=1", "--devices", "Q1"), "expected one of"), (("--slo", "ttft=1", "--price", "Q1=2"), "expected one of")]:
        done = run("plan", llama, "--trace", trace, *words)
        assert done.returncode != 0 and what in done.stderr, done.stderr
    assert "t.jsonl" in run("plan", llama, "--trace", tmp_path / "t.jsonl", "--slo", "ttft=1").stderr
    (tmp_path / "bad.jsonl").write_text("{}\n")
    assert "timestamp" in run("plan", llama, "--trace", tmp_path / "bad.jsonl", "--slo", "ttft=1").stderr
