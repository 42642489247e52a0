"""Errors at start, each with one sentence and its exit code, and the ways in which the program ends."""
import contextlib
import json
import resource
import shutil
import signal
import socket
import struct
import subprocess

import pytest

from serving import (
    ABACUS,
    DATA,
    PATIENCE_S,
    command,
    free_port,
    limit_files,
    run,
    serving,
    serving_unheard,
    wait_until,
)

LLAMA = DATA / "checkpoints" / "llama-bf16"


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(LLAMA, folder)
    return folder


def refused(code, *words, says=(), **kw):
    result = run("serve", *words, "--host", "127.0.0.1", "--port", 0, **kw)
    assert result.returncode == code, (result.returncode, result.stderr)
    line = result.stderr.strip().splitlines()[-1] if code != 2 else result.stderr
    for word in says:
        assert word in line, result.stderr
    return line


def rewrite_header(folder, change):
    """Applies `change` to the header (a dict) of the folder's safetensors file."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size:])


def first_tensor(header):
    return next(name for name in header if name != "__metadata__")


def test_usage():
    refused(2, LLAMA, "--max-modle-len", 5, says=["--max-modle-len", "--max-model-len"])
    refused(2, LLAMA, "--port", "http", says=["--port", "http", "0 to 65535", "Port to listen on"])
    refused(2, LLAMA, "--dtype", "int3", says=["--dtype", "bfloat16"])
    assert run("serv").returncode == 2 and "serve" in run("serv").stderr
    assert run("serve").returncode == 2


def test_yaml(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("port: 0\nmax-modle-len: 5\n")
    refused(2, LLAMA, "--config", config, says=["c.yaml:2", "max-modle-len", "max-model-len"])


def test_no_such_model():
    assert run("serve", "/nowhere/at-all").returncode in (3, 5)
    result = run("serve", "nobody/nothing", env={"HF_HOME": "/nowhere"})
    assert result.returncode == 5 and "nobody/nothing" in result.stderr


def test_b07_truncated_tensors(copy):
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    refused(3, copy, says=["model.safetensors"])
    path.write_bytes(b"\x01\x02")
    refused(3, copy, says=["model.safetensors"])


def test_header_larger_than_the_file(copy):
    path = copy / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])
    refused(3, copy, says=["model.safetensors"])


def test_b01_lying_headers(copy):
    changes = {
        "overlap": lambda h: h[first_tensor(h)].update(data_offsets=[2, h[first_tensor(h)]["data_offsets"][1] + 2]),
        "outside": lambda h: h[first_tensor(h)].update(data_offsets=[0, 1 << 50]),
        "shape": lambda h: h[first_tensor(h)].update(shape=[1, 2, 3]),
        "type": lambda h: h[first_tensor(h)].update(dtype="Q7"),
        "missing": lambda h: h.pop(first_tensor(h)),
    }
    original = (copy / "model.safetensors").read_bytes()
    for change in changes.values():
        (copy / "model.safetensors").write_bytes(original)
        rewrite_header(copy, change)
        refused(3, copy)


def test_b06_missing_shard(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(DATA / "checkpoints" / "llama-tied-bf16-sharded", folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    refused(3, folder, says=["model-00002-of-00003.safetensors"])


def test_configuration_that_is_not_supported(copy):
    config = json.loads((copy / "config.json").read_text())
    for change, word in (({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
                         ({"hidden_act": "relu6"}, "relu6"),
                         ({"rope_scaling": {"rope_type": "curly", "factor": 2}}, "curly")):
        (copy / "config.json").write_text(json.dumps({**config, **change}))
        refused(3, copy, says=[word])


def test_tokenizer_larger_than_the_vocabulary(copy):
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({"id": 100000, "content": "<far>", "single_word": False, "lstrip": False, "rstrip": False,
                                      "normalized": False, "special": True})
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused(3, copy, says=["513 tokens"])


def test_what_is_small_is_read_before_the_weights(copy):
    tokenizer = (copy / "tokenizer.json").read_text()
    (copy / "model.safetensors").write_bytes(b"no weights")
    refused(3, copy, says=["model.safetensors"])
    refused(2, copy, "--chat-template", "{% if %}", says=["--chat-template"])
    refused(2, copy, "--override-generation-config", '{"top_k": "a"}', says=["top_k"])
    # An unreadable file is ignored: only the weights are reported.
    (copy / "generation_config.json").write_text('{\n "top_k": nul}')
    refused(3, copy, says=["model.safetensors"])
    (copy / "generation_config.json").write_text('{"top_k": "a"}')
    refused(3, copy, says=["generation_config.json", "top_k"])
    (copy / "generation_config.json").unlink()
    (copy / "tokenizer.json").write_text('{\n "version": "1.0",,\n "model": {}}')
    refused(3, copy, says=["tokenizer.json", "(line 2, column 19)"])
    (copy / "tokenizer.json").write_text(tokenizer[:1000])
    refused(3, copy, says=["tokenizer.json", "(line "])


def test_other_formats_are_told_by_name(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    refused(3, folder, says=["LoRA adapter of org/base", "merge_and_unload"])
    (folder / "adapter_config.json").unlink()
    (folder / "q4.gguf").write_bytes(b"GGUF")
    refused(3, folder, says=["q4.gguf", "GGUF format is not supported", "safetensors"])
    refused(3, folder / "q4.gguf", says=["is a GGUF file"])


def test_more_devices_than_compute_are_a_warning():
    with serving(LLAMA, "--ep-size", 2) as server:
        assert "WARN options --ep-size 2 has no effect: a model is divided" in server.log()


def test_c03_too_large_for_memory():
    line = refused(4, ABACUS, "--kv-cache-memory-bytes", "900TiB")
    assert "kv_cache_memory_bytes" in line.replace("-", "_")
    line = refused(4, LLAMA, "--num-gpu-blocks-override", 1, "--max-model-len", 512)
    assert "max_model_len" in line.replace("-", "_")


def test_forced_instruction_set():
    assert run("serve", LLAMA, "--cpu-isa", "sse9").returncode == 2


def test_c02_port_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("serve", LLAMA, "--host", "127.0.0.1", "--port", port)
        assert result.returncode == 6 and str(port) in result.stderr


@contextlib.contextmanager
def streaming(server, key="none", **fields):
    """A running stream: its first bytes have arrived."""
    body = json.dumps({"model": "m", "prompt": "Tom has 3 apples.", "ignore_eos": True, "stream": True, **fields})
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as client:
        client.sendall(("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                        "Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" % (key, len(body), body)).encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        yield client


def test_f05_drain():
    """The running answer is finished, new requests are rejected, exit code 0."""
    with serving(ABACUS, "--max-model-len", 4096, "--shutdown-timeout", PATIENCE_S) as server:
        with streaming(server, max_tokens=1500, stream_options={"include_usage": True}) as client:
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "draining: new requests are refused" in server.log(), server.log)
            try:
                status, _ = server.get("/health")
                assert status == 503
            except OSError:
                pass  # the server does not listen
            rest = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert b'"completion_tokens":1500' in rest and b"data: [DONE]" in rest, rest[-1000:]
        assert server.process.wait(PATIENCE_S) == 0


def test_f06_second_signal_ends_at_once():
    # More work than any machine can do before the second signal, so the drain cannot complete,
    # which would give exit code 0.
    with serving(ABACUS, "--max-model-len", 8192, "--num-gpu-blocks-override", 16384, "--shutdown-timeout", PATIENCE_S) as server:
        with streaming(server, max_tokens=8000, n=32, temperature=1):
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "draining: new requests are refused" in server.log(), server.log)
            assert server.process.poll() is None
            assert server.stop(signal.SIGTERM) == 143


def test_health_while_loading_and_words_when_ready(tmp_path):
    with serving(ABACUS) as server:
        wait_until(lambda: "Application startup complete." in server.log(), server.log)
        assert server.get("/health")[0] == 200
        assert server.stop(signal.SIGINT) == 0


def test_r01_more_connections_than_the_shell_lets_files_be_open():
    """The server raises the soft limit of open files as far as allowed."""
    with serving(LLAMA, preexec_fn=lambda: limit_files(64)) as server:
        with contextlib.ExitStack() as clients:
            for _ in range(100):
                client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        assert "cannot accept" not in server.log()


def test_links():
    for program in ("vllm", "trtllm-serve"):
        with serving(LLAMA, "--max_model_len", 256, "--trust-remote-code", program=program) as server:
            assert server.get("/v1/models")[0] == 200


def test_f11_closed_output():
    """The server survives if nobody reads its log."""
    def closed(words, **kw):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
        process.stderr.readline()
        process.stderr.close()
        process.stdout.close()
        return process

    with serving_unheard(LLAMA, output=closed) as server:
        assert server.complete("Tom", max_tokens=2)["text"] is not None
        assert server.stop() == 0


def test_check_says_whether_a_server_would_start(tmp_path):
    """Like nginx -t, --check prints the plan with exit code 0, or the error with its code; it never listens on a port."""
    port = free_port()
    good = run("serve", ABACUS, "--check", "--host", "127.0.0.1", "--port", port, "--max-model-len", 512)
    assert good.returncode == 0, good.stderr
    assert "memory plan" in good.stdout and "nothing was started" in good.stdout
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cases = [
            (6, "is already in use", ("--port", taken.getsockname()[1])),
            (2, "--max-num-seqs", ("--max-num-seqs", "many")),
            (2, "no-such.crt", ("--ssl-certfile", tmp_path / "no-such.crt", "--ssl-keyfile", tmp_path / "no-such.key")),
            (4, "KV cache", ("--kv-cache-memory-bytes", 100_000, "--max-model-len", 4096)),
        ]
        for code, message, words in cases:
            result = run("serve", ABACUS, "--check", "--host", "127.0.0.1", *(() if code == 6 else ("--port", port)), *words)
            assert (result.returncode, message in result.stderr) == (code, True), result.stderr
    missing = run("serve", tmp_path, "--check", "--port", port)
    assert missing.returncode == 3 and "config.json" in missing.stderr


def test_inspect_of_what_cannot_be_served_has_the_exit_code_of_serve(copy):
    assert run("inspect", copy).returncode == 0
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "abacus", "architectures": ["AbacusForCausalLM"]}))
    described = run("inspect", copy, "--json")
    assert described.returncode == 3
    assert "AbacusForCausalLM" in json.dumps(json.loads(described.stdout))


def test_a_batch_of_which_everything_fails_has_failed(tmp_path):
    lines = tmp_path / "in.jsonl"
    good = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": str(ABACUS), "prompt": "1", "max_tokens": 1}}
    bad = {**good, "custom_id": "b", "body": {**good["body"], "max_tokens": "many"}}
    for batch, code in (([good, bad], 0), ([bad], 1)):
        lines.write_text("".join(json.dumps(line) + "\n" for line in batch))
        result = run("run-batch", "-i", lines, "-o", tmp_path / "out.jsonl", "--model", ABACUS, "--max-model-len", 512)
        assert result.returncode == code, result.stderr


@pytest.mark.parametrize("kibibytes", [50_000, 60_000, 80_000, 100_000, 120_000])
def test_a_limit_of_memory_is_named_as_such(kibibytes):
    """Under ulimit -v, the error mentions memory, and not only a limit of threads, whichever allocation fails first."""
    done = run("serve", ABACUS, "--port", 0, "--max-model-len", 512, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (kibibytes << 10,) * 2))
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode in (1, 3, 4), done
    assert "memory" in last or "allocate" in last or "ulimit -v" in last, last


def on_a_disk(folder, options, *words):
    """Runs the program in a mount namespace where `folder` is a file system with these mount options."""
    script = 'mount -t tmpfs -o "$0" none "$1" && shift && exec "$@"'
    return subprocess.run(["unshare", "-rm", "sh", "-c", script, options, str(folder), *command(*words)], capture_output=True, text=True, timeout=PATIENCE_S)


def test_where_a_file_cannot_be_written_the_code_says_why(tmp_path):
    """The exit code is 4 for a full disk, 3 for a read-only disk, 2 for a folder that does not exist."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    batch = tmp_path / "batch.jsonl"
    batch.write_text(20 * '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 200, "ignore_eos": true}}\n')
    latency = ("bench", "latency", ABACUS, "--input-len", 8, "--output-len", 4, "--num-iters", 600, "--num-iters-warmup", 0, "--batch-size", 1, "--no-limits",
               "--output-json")
    for words, option in ((latency, "--output-json"), (("run-batch", "--model", ABACUS, "-i", batch, "-o"), "--output-file"),
                          (("quantize", ABACUS, "--to", "fp8-dynamic"), "")):
        for options, code, said in (("size=4k", 4, "No space left"), ("ro", 3, "Read-only"), ("size=4k", 2, "No such file")):
            if code == 2 and words[0] == "quantize":
                continue  # this command creates the folders
            done = on_a_disk(disk, options, *words, disk / ("none/x" if code == 2 else "x"))
            assert done.returncode == code and said in done.stderr and option in done.stderr, (words[0], options, done.returncode, done.stderr)
