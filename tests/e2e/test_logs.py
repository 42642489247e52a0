"""The lines that tools read out of vLLM's log: accesses, requests, statistics; and the options that turn them off."""
import re

from serving import DATA, serving, wait_until

CHECKPOINT = DATA / "checkpoints" / "llama-bf16"
COMMON = ("--max-model-len", 512, "--dtype", "float32", "--threads", 2)
STATISTICS = re.compile(r"Engine 000: Avg prompt throughput: \d+\.\d tokens/s, Avg generation throughput: \d+\.\d tokens/s, Running: \d+ reqs, "
                        r"Waiting: \d+ reqs, CPU KV cache usage: \d+\.\d%, Prefix cache hit rate: \d+\.\d%")


def ask(server):
    server.complete("The abacus counts the beads", max_tokens=4)
    server.get("/v1/models")
    assert server.post("/v1/completions", {"model": "nope", "prompt": "a"})[0] == 404


def test_log_lines():
    with serving(CHECKPOINT, *COMMON, "--enable-log-requests", "--enable-log-outputs", "--max-log-len", 10,
                 "--disable-access-log-for-endpoints", "/health", program="vllm", env={"VLLM_LOG_STATS_INTERVAL": "1"}) as server:
        ask(server)
        # A line may be written after what it tells of was answered.
        for line in (STATISTICS, re.compile(r'^INFO:     127\.0\.0\.1:\d+ - "POST /v1/completions HTTP/1\.1" 200 OK$', re.M),
                     re.compile(r'^INFO:     127\.0\.0\.1:\d+ - "POST /v1/completions HTTP/1\.1" 404 Not Found$', re.M),
                     re.compile("Generated response")):
            wait_until(lambda line=line: line.search(server.log()), lambda line=line: "no %s in:\n%s" % (line.pattern, server.log()))
        log = server.log()
    assert '"GET /health' not in log
    received = re.search(r"Received request (cmpl-[0-9a-f]{16}): prompt: 'The abacus', params: SamplingParams\(n=1, .*temperature=0\.0, .*max_tokens=4,", log)
    assert received
    assert re.search(r"Generated response %s: output: .*, output tokens: 4, finish_reason: length" % received.group(1), log)


def test_lines_can_be_turned_off():
    for flags in (("--uvicorn-log-level", "warning", "--disable-log-requests"), ("--disable-uvicorn-access-log", "--disable-log-stats")):
        with serving(CHECKPOINT, *COMMON, *flags, program="vllm") as server:
            ask(server)
            # What is still to be written is there when the server has ended.
            assert server.stop() == 0
            log = server.log()
        assert '"POST /v1/completions' not in log and "Received request" not in log
