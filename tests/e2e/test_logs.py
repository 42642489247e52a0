"""The log. All lines have one format, as text or as JSON. Under the name vllm, the program also prints the lines
that tools parse from vLLM's log, unless options turn them off."""
import json
import re
import socket
import subprocess

from serving import ABACUS, DATA, PATIENCE_S, command, serving, wait_until

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
        # A log line may be written after the client received the answer.
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
            # All pending lines are written once the server has ended.
            assert server.stop() == 0
            log = server.log()
        assert '"POST /v1/completions' not in log and "Received request" not in log


LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARN|ERROR) [a-z_]+ .*")
DONE = re.compile(r'access POST /v1/completions 200 client=127\.0\.0\.1:\d+ seconds=\d+\.\d+ request_id=cmpl-mine prompt_tokens=\d+ '
                  r"completion_tokens=4 cached_tokens=\d+ finish_reason=length$", re.M)


def ask_oddly(server):
    for _ in range(2):
        server.post("/v1/completions", {"model": "m", "prompt": "The abacus counts", "max_tokens": 4, "temperature": 0,
                                        "max_token": 3}, headers={"X-Request-Id": "mine"})
    assert server.post("/v1/completions", {"model": "nope", "prompt": "a"})[0] == 404


def test_one_form_with_level_time_and_source():
    with serving(CHECKPOINT, *COMMON, "--log-level", "debug", env={"SLUICE_MAX_NUM_SEQ": "3"}) as server:
        ask_oddly(server)
        wait_until(lambda: "does not exist" in server.log(), server.log)
        assert server.stop() == 0
        log = server.log()
    for line in log.splitlines():
        assert LINE.fullmatch(line), line
    assert len(DONE.findall(log)) == 2, log
    assert re.search(r'WARN access POST /v1/completions 404 .*error="The model `nope` does not exist', log), log
    assert log.count("fields were present in the request but ignored: {'max_token'}") == 1, log
    assert "SLUICE_MAX_NUM_SEQ is not a variable of this program, did you mean SLUICE_MAX_NUM_SEQS" in log, log
    became = re.search(r"DEBUG server Received request cmpl-mine: params: SamplingParams\(n=1, .*max_tokens=4,.* prompt tokens: \d+", log)
    assert became and "The abacus" not in log, log


def test_a_client_that_leaves():
    """After a client disconnects, its log line reports the tokens that were generated for it."""
    with serving(ABACUS, "--max-model-len", 4096) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as client:
            body = json.dumps({"model": "m", "prompt": "The abacus counts", "max_tokens": 4000, "ignore_eos": True, "stream": True})
            client.sendall(("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                            % (len(body), body)).encode())
            while client.recv(4096).count(b"data: ") < 1:
                pass
        left = re.compile(r"access POST /v1/completions 200 .* prompt_tokens=\d+ completion_tokens=[1-9]\d* cached_tokens=\d+ finish_reason=abort$", re.M)
        wait_until(lambda: left.search(server.log()), server.log)


def test_json_on_one_stream(tmp_path):
    with open(tmp_path / "out", "w") as out, open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command("serve", CHECKPOINT, *COMMON, "--port", 0, "--host", "127.0.0.1", "--log-format", "json"),
                                   stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: "Application startup complete" in (tmp_path / "log").read_text(), (tmp_path / "log").read_text)
    finally:
        process.terminate()
        assert process.wait() == 0
    assert (tmp_path / "out").read_text() == ""
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert all({"ts", "level", "source", "message"} <= set(line) for line in lines)
    assert any(line["source"] == "memory" for line in lines)


def test_json_under_another_name():
    with serving(CHECKPOINT, *COMMON, "--log-format", "json", program="vllm") as server:
        ask_oddly(server)
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.log().splitlines()]
    done = [line for line in lines if line.get("request_id") == "cmpl-mine"]
    assert len(done) == 2 and done[0]["completion_tokens"] == 4 and done[0]["finish_reason"] == "length" and done[0]["status"] == 200
    assert any(line.get("status") == 404 and "does not exist" in line["error"] for line in lines)
    assert any(line["message"] == "Application startup complete." for line in lines)
