"""`bench serve`, `sweep`, `latency` and `throughput` against the bundled model and against servers that misbehave."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import serving as tools
from recording import recording, stream, token
from serving import (
    ABACUS,
    DATA,
    PATIENCE_S,
    command,
    deaf_port,
    end,
    run,
    wait_until_ready,
)

RANDOM = ("--dataset-name", "random", "--random-input-len", 32, "--random-output-len", 8)
LABELS = ["Successful requests:", "Failed requests:", "Benchmark duration (s):", "Total input tokens:", "Total generated tokens:",
          "Request throughput (req/s):", "Output token throughput (tok/s):", "Peak output token throughput (tok/s):",
          "Peak concurrent requests:", "Total Token throughput (tok/s):", "---------------Time to First Token----------------",
          "Mean TTFT (ms):", "Median TTFT (ms):", "P99 TTFT (ms):", "-----Time per Output Token (excl. 1st token)------",
          "Mean TPOT (ms):", "Median TPOT (ms):", "P99 TPOT (ms):", "---------------Inter-token Latency----------------",
          "Mean ITL (ms):", "Median ITL (ms):", "P99 ITL (ms):", "----------------End-to-end Latency----------------",
          "Mean E2EL (ms):", "Median E2EL (ms):", "P99 E2EL (ms):", "=" * 50]


def bench(server, *words, program="vllm", env=None, **kw):
    port = server if isinstance(server, int) else server.port
    return run("bench", "serve", "--port", port, "--model", "m", "--tokenizer", ABACUS, *words, program=program, env=env, **kw)


def saved(tmp_path, server, *words, code=0, **kw):
    """The JSON that a run saves."""
    result = bench(server, *words, "--save-result", "--result-dir", tmp_path, "--result-filename", "r.json", **kw)
    assert result.returncode == code, result.stdout + result.stderr
    return json.loads((tmp_path / "r.json").read_text())


def value_of(label, text):
    return float(re.search("^" + re.escape(label) + r" +(\S+)", text, re.M).group(1))


def test_table_has_every_line_in_order(abacus):
    result = bench(abacus, *RANDOM, "--num-prompts", 20, "--max-concurrency", 4)
    assert result.returncode == 0, result.stderr
    rest = iter(result.stdout.splitlines())
    for label in LABELS:
        assert any(line.startswith(label) for line in rest), label
    assert value_of("Total input tokens:", result.stdout) == 20 * 32
    assert value_of("Total generated tokens:", result.stdout) == 20 * 8
    assert "Maximum request concurrency:             4         \n" in result.stdout


def test_file_has_every_key_and_its_numbers_agree(abacus, tmp_path):
    r = saved(tmp_path, abacus, *RANDOM, "--num-prompts", 12, "--save-detailed", "--metadata", "gpu=none", "a=b=c",
              "--metric-percentiles", "50,99.9", "--goodput", "ttft:60000", "e2el:0.001", "--seed", 3)
    for key in json.loads((DATA / "bench" / "vllm_result_keys.json").read_text()):
        assert key in r or key.startswith("p99_"), key
    assert (r["gpu"], r["a"], r["backend"], r["request_rate"], r["max_concurrency"]) == ("none", "b=c", "openai", "inf", None)
    assert r["completed"] == 12 and r["failed"] == 0 and r["errors"] == [""] * 12
    assert r["input_lens"] == [32] * 12 and r["output_lens"] == [8] * 12
    assert r["request_goodput"] == 0
    assert all(len(gaps) == 7 for gaps in r["itls"])
    for ttft, gaps, latency in zip(r["ttfts"], r["itls"], r["latencies"]):
        assert ttft + sum(gaps) == pytest.approx(latency)
    assert r["mean_ttft_ms"] == pytest.approx(1e3 * sum(r["ttfts"]) / 12)
    assert r["mean_tpot_ms"] == pytest.approx(1e3 * sum((l - t) / 7 for l, t in zip(r["latencies"], r["ttfts"])) / 12)
    assert r["output_throughput"] == pytest.approx(96 / r["duration"])
    assert r["p50_e2el_ms"] == pytest.approx(r["median_e2el_ms"]) and "p99.9_itl_ms" in r and "p99_itl_ms" not in r


def test_results_are_appended_as_lines(abacus, tmp_path):
    for label in ("one", "two"):
        assert bench(abacus, *RANDOM, "--num-prompts", 2, "--append-result", "--label", label, "--result-filename", "all.jsonl",
                     "--result-dir", tmp_path / "new").returncode == 0
    lines = (tmp_path / "new" / "all.jsonl").read_text().split("\n")
    assert [json.loads(line)["label"] for line in lines] == ["one", "two"]


def test_a_line_is_appended_whole_or_not_at_all(abacus, tmp_path):
    path = tmp_path / "all.jsonl"
    words = (*RANDOM, "--num-prompts", 2, "--append-result", "--result-filename", "all.jsonl", "--result-dir", tmp_path)
    assert bench(abacus, *words).returncode == 0
    before = path.read_text()
    limit = len(before) + 100

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing then fails, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    result = bench(abacus, *words, preexec_fn=little_room)
    assert result.returncode == 1 and "cannot write" in result.stderr and path.read_text() == before


def test_file_name_of_its_own(abacus, tmp_path):
    assert bench(abacus, *RANDOM, "--num-prompts", 2, "--max-concurrency", 2, "--save-result", cwd=tmp_path).returncode == 0
    assert [re.sub(r"\d{8}-\d{6}", "DATE", p.name) for p in tmp_path.iterdir()] == ["openai-infqps-concurrency2-m-DATE.json"]


def test_rate_and_seed_decide_the_arrivals(abacus, tmp_path):
    first = saved(tmp_path, abacus, *RANDOM, "--num-prompts", 10, "--request-rate", 20, "--save-detailed")
    begins = [t - first["start_times"][0] for t in first["start_times"]]
    assert begins == sorted(begins)
    again = saved(tmp_path, abacus, *RANDOM, "--num-prompts", 10, "--request-rate", 20, "--save-detailed")
    due = [s - q for s, q in zip(first["start_times"], first["queue_times"])]
    due_again = [s - q for s, q in zip(again["start_times"], again["queue_times"])]
    assert 0.2 < due[-1] - due[0] <= 0.5 < first["duration"]
    for a, b in zip(due, due_again):
        assert a - due[0] == pytest.approx(b - due_again[0], abs=1e-6)


def test_ramp(abacus, tmp_path):
    r = saved(tmp_path, abacus, *RANDOM, "--num-prompts", 12, "--ramp-up-strategy", "linear", "--ramp-up-start-rps", 10,
              "--ramp-up-end-rps", 14, "--burstiness", "inf")
    assert (r["ramp_up_strategy"], r["ramp_up_start_rps"], r["ramp_up_end_rps"]) == ("linear", 10, 14)
    assert [e["rps"] for e in r["rps_change_events"]] == [10, 11, 12, 13, 14]


def test_concurrency_is_kept(abacus, tmp_path):
    r = saved(tmp_path, abacus, *RANDOM, "--num-prompts", 12, "--max-concurrency", 3, "--save-detailed")
    spans = [(s, s + l) for s, l in zip(r["start_times"], r["latencies"])]
    assert max(sum(a <= s < b for a, b in spans) for s, _ in spans) == 3


def test_what_is_sent():
    """The fields, headers and route of a completion and of a chat."""
    with recording(lambda i, body: stream(token("a"), token("b"), {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})) as server:
        assert bench(server.port, *RANDOM, "--num-prompts", 2, "--top-k", 7, "--temperature", 0, "--extra-body", '{"min_tokens": 1}',
                     "--header", "X-One=1", "--request-id-prefix", "id-", env={"OPENAI_API_KEY": "secret"}).returncode == 0
        path, headers, body = server.seen[0]
        assert path == "/v1/completions"
        assert headers["Authorization"] == "Bearer secret" and headers["X-One"] == "1"
        assert sorted(h["x-request-id"] for _, h, _ in server.seen) == ["id-0", "id-1"]
        assert isinstance(body.pop("prompt"), str)
        assert body == {"model": "m", "repetition_penalty": 1.0, "max_tokens": 8, "logprobs": None, "stream": True,
                        "stream_options": {"include_usage": True}, "ignore_eos": True, "top_k": 7, "temperature": 0, "min_tokens": 1}
        server.seen.clear()
        assert bench(server.port, *RANDOM, "--num-prompts", 1, "--backend", "openai-chat", "--served-model-name", "other",
                     "--logprobs", 2).returncode == 0
        path, _, body = server.seen[0]
        assert path == "/v1/chat/completions"
        assert [m["role"] for m in body["messages"]] == ["user"] and body["messages"][0]["content"][0]["type"] == "text"
        assert body["model"] == "other" and body["max_completion_tokens"] == 8 and body["top_logprobs"] == 2
        server.seen.clear()
        assert bench(server.port, *RANDOM, "--num-prompts", 1, "--random-ids", "--tokenize-on-client", "--non-streaming",
                     "--no-test-input", program="trtllm-serve").returncode == 1  # a stream instead of a whole answer
        assert len(server.seen[0][2]["prompt"]) == 32 and server.seen[0][2]["temperature"] == 0 and server.seen[0][2]["stream"] is False


def test_counts_are_the_servers_or_those_of_its_text(tmp_path):
    with recording(lambda i, body: stream(token("Tom"), token(" has 3"))) as server:
        r = saved(tmp_path, server.port, *RANDOM, "--num-prompts", 1, "--save-detailed")
    lines = "".join(json.dumps({"text": "Tom has 3", "add_special_tokens": False}) + "\n")
    ids = json.loads(run("tokenize", "--model", ABACUS, input=lines).stdout)["ids"]
    assert r["output_lens"] == [len(ids)] and r["generated_texts"] == ["Tom has 3"]
    assert len(r["itls"][0]) == 3 and len(set(r["itls"][0])) == 1  # two of the five tokens came with the first event


def test_data_from_files(abacus, tmp_path):
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"prompt": "Tom has %d" % i, "output_tokens": 1 + i}) + "\n" for i in range(3)))
    custom = ("--dataset-name", "custom", "--dataset-path", tmp_path / "c.jsonl", "--num-prompts", 3, "--save-detailed", "--ignore-eos")
    r = saved(tmp_path, abacus, *custom, "--custom-output-len", -1, "--skip-chat-template", "--disable-shuffle")
    assert r["output_lens"] == [1, 2, 3]
    r = saved(tmp_path, abacus, *custom, "--output-len", 4, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions")
    assert r["output_lens"] == [4, 4, 4]
    templated = saved(tmp_path, abacus, *custom, "--output-len", 4)
    plain = saved(tmp_path, abacus, *custom, "--output-len", 4, "--skip-chat-template")
    assert templated["total_input_tokens"] > plain["total_input_tokens"]
    turns = [{"conversations": [{"from": "human", "value": "Tom has %d apples." % i}, {"from": "gpt", "value": "He has some of them."}]} for i in range(4)]
    (tmp_path / "s.json").write_text(json.dumps(turns))
    r = saved(tmp_path, abacus, "--dataset-name", "sharegpt", "--dataset-path", tmp_path / "s.json", "--num-prompts", 6, "--sharegpt-output-len", 5,
              "--ignore-eos")
    assert (r["completed"], r["total_output_tokens"]) == (6, 30)
    r = saved(tmp_path, abacus, "--dataset-name", "sonnet", "--num-prompts", 3, "--sonnet-input-len", 700, "--sonnet-prefix-len", 400,
              "--sonnet-output-len", 4, "--ignore-eos")
    assert r["completed"] == 3 and r["total_input_tokens"] <= 2100


def test_without_a_tokenizer_or_a_model(abacus, tmp_path):
    (tmp_path / "c.jsonl").write_text('{"prompt": "Tom"}\n')
    result = run("bench", "serve", "--base-url", abacus.url + "/v1", "--skip-tokenizer-init", "--dataset-name", "custom", "--dataset-path",
                 tmp_path / "c.jsonl", "--num-prompts", 2, "--custom-output-len", 3)
    assert result.returncode == 0, result.stderr
    assert "First model name: m" in result.stdout
    assert value_of("Successful requests:", result.stdout) == 2


def test_dead_server():
    result = bench(deaf_port(), *RANDOM, "--num-prompts", 5)
    assert result.returncode == 1
    assert value_of("Failed requests:", result.stdout) == 5 and value_of("Successful requests:", result.stdout) == 0
    assert "Error 0: Cannot connect to host 127.0.0.1" in result.stdout
    result = run("bench", "serve", "--port", deaf_port())
    assert result.returncode == 5 and "no server answers at" in result.stderr


def test_failing_servers(abacus, tmp_path):
    result = bench(abacus, "--dataset-name", "random", "--random-input-len", 5000, "--num-prompts", 2)
    assert result.returncode == 1 and value_of("Failed requests:", result.stdout) == 2
    assert "Error 0: the server answered with 400: " in result.stdout and "maximum context length" in result.stdout
    # If the server closes a kept-alive connection, the client sends the request once more on a new
    # one.
    answers = [(500, "application/json", '{"error": {"message": "broken"}}'), (0, "", ""), (0, "", ""), stream(token("a"), {"error": {"message": "halfway"}}),
               stream(), (200, "text/event-stream", "data: {no json\n\n"), stream(token("a"), token("b"))]
    with recording(lambda i, body: answers[i]) as server:
        r = saved(tmp_path, server.port, *RANDOM, "--num-prompts", 6, "--max-concurrency", 1, "--save-detailed", code=1)
    assert (r["completed"], r["failed"]) == (1, 5)
    for error, word in zip(r["errors"], ["the server answered with 500: broken", "closed the connection", "halfway", "Never received a valid chunk",
                                         "not JSON", ""]):
        assert word in error if word else error == ""


def test_interrupted_run_prints_what_it_has():
    asked, interrupted = threading.Event(), threading.Event()

    def script(i, body):
        """The fourth request hangs until the interruption. Only one request runs at a time, so three have ended before."""
        if i == 3:
            asked.set()
            interrupted.wait(PATIENCE_S)
        return stream(token("a"))

    with recording(script) as server:
        process = subprocess.Popen(command("bench", "serve", "--port", server.port, "--model", "m", "--tokenizer", ABACUS, *RANDOM, "--num-prompts", 500,
                                           "--max-concurrency", 1, program="vllm"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert asked.wait(PATIENCE_S)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            interrupted.set()
            end(process)
    assert process.returncode == 130
    assert value_of("Successful requests:", out) == 3 and "P99 E2EL (ms):" in out
    assert re.search(r"^Interrupted: 3 of 500 requests had ended\.$", out, re.M)


def test_ready_check_and_warmups():
    calls = lambda i, body: (503, "application/json", "{}") if i < 1 else stream(token("a"))
    with recording(calls) as server:
        result = bench(server.port, *RANDOM, "--num-prompts", 2, "--ready-check-timeout-sec", PATIENCE_S)
        assert result.returncode == 0 and "Initial test run completed." in result.stdout
    with recording(lambda i, body: (404, "application/json", '{"error": {"message": "no model"}}')) as server:
        result = bench(server.port, *RANDOM, "--num-prompts", 2, program="trtllm-serve")
        assert result.returncode == 5 and "Initial test run failed" in result.stderr and "no model" in result.stderr
        assert len(server.seen) == 1
        assert bench(server.port, *RANDOM, "--num-prompts", 2, "--no-test-input", program="trtllm-serve").returncode == 1
    with recording(lambda i, body: stream(token("a"))) as server:
        assert bench(server.port, *RANDOM, "--num-prompts", 2, "--num-warmups", 3).returncode == 0
        assert len(server.seen) == 5


@pytest.mark.parametrize("words, message", [
    (("--dataset-name", "hf"), "custom"), (("--backend", "vllm-rerank"), "openai-chat"), (("--request-rate", 0), "--request-rate"),
    (("--goodput", "ttft"), "ttft:200"), (("--goodput", "itl:5"), "e2el"), (("--percentile-metrics", "ttft,speed"), "'speed'"),
    (("--metric-percentiles", "101"), "0 to 100"), (("--metadata", "alone"), "KEY=VALUE"), (("--random-range-ratio", "1.5"), "below 1"),
    (("--random-range-ratio", "much"), "'much'"), (("--ramp-up-strategy", "linear"), "--ramp-up-start-rps"), (("--ramp-up-end-rps", 3), "--ramp-up-strategy"),
    (("--ramp-up-strategy", "linear", "--request-rate", 2), "--request-rate"), (("--tokenizer", "no/such"), "--tokenizer"),
    (("--base-url", "ftp://x"), "http, https or unix"), (("--dataset-name", "custom"), "--dataset-path"), (("--dataset-path", "x"), "--dataset-name"),
    (("--skip-tokenizer-init",), "custom"), (("--backend", "openai-chat", "--endpoint", "/v1/completions"), "chat/completions"),
    (("--probe-request-rate", 2), "probe"), (("--num-prompt", 0), "--num-prompt"), (("--max-concurency", 2), "--max-concurrency"),
])
def test_bad_options(words, message):
    result = bench(1, *words, program="sluice")
    assert result.returncode in (2, 3, 5), result.stdout + result.stderr
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert "Serving Benchmark Result" not in result.stdout


def test_every_flag_of_vllms_tool_is_known():
    text = run("bench", "serve", "--help=all", program="vllm").stdout
    for flag in json.loads((DATA / "bench" / "vllm_bench_serve_flags.json").read_text()):
        assert re.search(re.escape(flag) + r"\b", text), flag


def test_model_ids_of_the_cache_with_a_slash_at_the_end(tmp_path):
    """A recipe's model and its tokenizer are in the Hugging Face cache, with the program and the benchmark under each of their names."""
    repo = tmp_path / "hub" / "models--org--Some-Model-FP8"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0123456789abcdef0123456789abcdef01234567")
    shutil.copytree(ABACUS, repo / "snapshots" / "0123456789abcdef0123456789abcdef01234567")
    env = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    sizes = ("--dataset-name", "random", "--random-input-len", 24, "--random-output-len", 4, "--num-prompts", 6, "--max-concurrency", 3, "--ignore-eos")
    with open(tmp_path / "server.log", "w") as log:
        server = subprocess.Popen(command("serve", "org/Some-Model-FP8/", "--port", 0, "--max-model-len", 256, program="vllm"),
                                  env={**os.environ, **env}, stdout=log, stderr=subprocess.STDOUT)
    try:
        port = wait_until_ready(server, log.name)
        for name in ("org/Some-Model-FP8/", "org/Some-Model-FP8"):
            result = run("bench", "serve", "--host", "localhost", "--port", port, "--model", name, "--ready-check-timeout-sec", 30,
                         "--trust-remote-code", *sizes, program="vllm", env=env)
            assert result.returncode == 0, result.stdout + result.stderr
        module = subprocess.run([sys.executable, "-m", "tensorrt_llm.serve.scripts.benchmark_serving", "--model", "org/Some-Model-FP8", "--port", str(port),
                                 "--backend", "openai", *map(str, sizes), "--random-prefix-len", "0", "--random-ids", "--tokenize-on-client",
                                 "--percentile-metrics", "ttft,tpot,itl,e2el"], capture_output=True, text=True, timeout=PATIENCE_S,
                                env={**os.environ, **env, "PYTHONPATH": str(tools.BIN.parent / "python")})
        assert module.returncode == 0, module.stdout + module.stderr
        assert value_of("User throughput (tok/s):", module.stdout) > 0 and value_of("Total input tokens:", module.stdout) == 144
    finally:
        end(server)


def test_sweep(abacus, tmp_path):
    result = run("bench", "sweep", "--port", abacus.port, "--model", "m", "--tokenizer", ABACUS, *RANDOM, "--concurrencies", "1,2", 4, "--result-dir",
                 tmp_path, "--result-filename", "s")
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if re.match(r" +\d", line)]
    assert [row[:3] for row in rows] == [["1", "5", "0"], ["2", "10", "0"], ["4", "20", "0"]]
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 4
    steps = json.loads((tmp_path / "s.json").read_text())["steps"]
    assert [s["max_concurrency"] for s in steps] == [1, 2, 4] and all(s["output_throughput"] > 0 for s in steps)
    assert (tmp_path / "s.svg").read_text().count("<circle") == 3
    result = run("bench", "sweep", "--port", abacus.port, "--model", "m", "--tokenizer", ABACUS, *RANDOM, "--request-rates", 20, 40,
                 "--num-prompts", 8, "--result-dir", tmp_path)
    assert result.returncode == 0 and "req/s asked" in result.stdout
    assert run("bench", "sweep", "--concurrencies", 0, "--model", "m").returncode == 2


def test_latency_and_throughput_in_vllms_form(tmp_path):
    result = run("bench", "latency", "--model", ABACUS, "--input-len", 16, "--output-len", 4, "--batch-size", 2, "--num-iters", 5, "--num-iters-warmup", 1,
                 "--output-json", tmp_path / "l.json", program="vllm")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "l.json").read_text())
    assert "Avg latency: %s seconds" % figures["avg_latency"] in result.stdout
    for percent in (10, 25, 50, 75, 90, 99):
        assert "%d%% percentile latency: %s seconds" % (percent, figures["percentiles"][str(percent)]) in result.stdout
    assert len(figures["latencies"]) == 5 and sorted(figures["latencies"])[2] == figures["percentiles"]["50"]
    result = run("bench", "throughput", "--model", ABACUS, "--input-len", 16, "--output-len", 4, "--num-prompts", 6, "--output-json", tmp_path / "t.json",
                 program="vllm")
    assert result.returncode == 0, result.stderr
    figures = json.loads((tmp_path / "t.json").read_text())
    assert re.search(r"^Throughput: [\d.]+ requests/s, [\d.]+ total tokens/s, [\d.]+ output tokens/s$", result.stdout, re.M)
    assert "Total num prompt tokens:  96\nTotal num output tokens:  24\n" in result.stdout
    assert figures["total_num_tokens"] == 120 and figures["num_requests"] == 6
