"""Requests that a server refuses without a key, and code that it refuses from an untrusted model."""
import contextlib
import http.client
import json
import os
import shutil
import struct
import subprocess

import pytest

from serving import (
    DATA,
    PATIENCE_S,
    run,
    serving,
    serving_unheard,
    wait_until,
)

LLAMA = DATA / "checkpoints" / "llama-bf16"
COMMON = ("--max-model-len", 256, "--threads", 2)
KEY = "sk-bead-0001"
RIGHT = {"Authorization": "Bearer " + KEY}
ASK = {"model": "m", "prompt": "Tom has", "max_tokens": 2}
OPEN = ["/health", "/ping", "/version", "/metrics", "/load", "/docs", "/openapi.json"]
GUARDED = {
    "/v1/completions": ASK,
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "Tom"}], "max_tokens": 2},
    "/invocations": ASK,
    "/tokenize": {"model": "m", "prompt": "Tom"},
    "/detokenize": {"model": "m", "tokens": [5]},
    "/generative_scoring": {"model": "m"},
    "/pause": {},
    "/resume": {},
    "/reset_prefix_cache": {},
    "/sleep": {},
    "/wake_up": {},
    "/inference/v1/generate": {"token_ids": [5], "sampling_params": {}},
    "/abort_requests": {},
    "/collective_rpc": {},
}


@pytest.mark.parametrize("program", ["vllm", "trtllm-serve"])
def test_a01_a_key_is_needed_for_what_computes_or_changes(program):
    with serving(LLAMA, "--max_model_len", 256, "--api-key", KEY, program=program, env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
        for path, body in GUARDED.items():
            assert server.request("POST", path, body)[0] == 401, path
            assert server.request("POST", path, body, headers={"Authorization": "Bearer sk-bead-000"})[0] == 401, path
        for path in ("/server_info", "/is_paused", "/v1/models"):
            assert server.get(path)[0] == 401, path
        for path in OPEN:
            assert server.get(path)[0] == 200, path
        for path in ("/v1/completions", "/invocations", "/tokenize", "/detokenize"):
            assert server.request("POST", path, GUARDED[path], headers=RIGHT)[0] == 200, path
        # A key in the URL is not accepted, and does not appear in the log.
        for path in ("/v1/models?api_key=" + KEY, "/tokenize?x=sk%2Dbead-0001&y=1", "/" + KEY, "/health?token=other"):
            server.get(path)
        wait_until(lambda: "token=***" in server.log(), server.log)
        log = server.log()
    assert "/v1/models?api_key=***" in log and "?x=***&y=1" in log and '"GET /*** ' in log
    assert KEY not in log and "sk%2D" not in log and "token=other" not in log


def test_all_but_health_can_be_protected():
    with serving(LLAMA, *COMMON, "--api-key", KEY, "--protect-all") as server:
        for path in (*OPEN[1:], "/nope"):
            assert server.get(path)[0] == 401, path
            assert server.get(path, headers=RIGHT)[0] == (404 if path == "/nope" else 200), path
        assert server.get("/health")[0] == 200
    refused = run("serve", LLAMA, "--protect-all")
    assert refused.returncode != 0 and "--api-key" in refused.stderr


def test_f11_a_log_that_nobody_reads_holds_nothing_up():
    """A log that nobody reads delays neither answers nor the drain after SIGTERM."""
    reading, writing = os.pipe()

    def unread(words, **kw):
        return subprocess.Popen(words, stdout=writing, stderr=writing, **kw)

    try:
        with serving_unheard(LLAMA, *COMMON, "--shutdown-timeout", 1, output=unread) as server:
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
            with contextlib.closing(client):
                for _ in range(400):  # more than fits into a pipe
                    client.request("GET", "/" + "n" * 400)
                    answer = client.getresponse()
                    assert answer.read() and answer.status == 404
            assert server.stop(timeout=45) == 0
    finally:
        os.close(reading)
        os.close(writing)


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(LLAMA, folder)
    return folder


def test_b09_weights_that_are_not_finite(copy):
    path = copy / "model.safetensors"
    raw = bytearray(path.read_bytes())
    size = struct.unpack("<Q", raw[:8])[0]
    name = "model.layers.1.mlp.up_proj.weight"
    tensor = json.loads(raw[8:8 + size])[name]
    assert tensor["dtype"] == "BF16"
    place = 8 + size + tensor["data_offsets"][1] - 2
    raw[place:place + 2] = b"\xc0\x7f"
    path.write_bytes(raw)
    refused = run("serve", copy, "--host", "127.0.0.1", "--port", 0, *COMMON)
    assert refused.returncode == 3, refused.stderr
    assert "'%s' in model.safetensors has nan at row" % name in refused.stderr.splitlines()[-1], refused.stderr
    with serving(copy, *COMMON, "--allow-nonfinite") as server:
        assert "1 tensors contain NaN or infinite values (the first is %s)" % name in server.log()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_v11_files_that_link_out_of_the_model(copy, tmp_path, name):
    secret = tmp_path / "secret"
    with contextlib.suppress(FileNotFoundError):
        shutil.move(copy / name, secret)
    secret.touch()
    (copy / name).symlink_to(secret)
    refused = run("serve", copy, "--host", "127.0.0.1", "--port", 0, *COMMON)
    assert refused.returncode == 3, refused.stderr
    assert "%s links to" % name in refused.stderr.splitlines()[-1], refused.stderr
