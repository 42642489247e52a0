"""`sluice serve --receipts`, `sluice verify`, `sluice receipt-key`."""
import json
import shutil

import pytest

from serving import ABACUS, DATA, run, serving

PORTABLE = DATA / "receipts"

CHAT = {"messages": [{"role": "user", "content": "What is 12 + 30?"}], "max_tokens": 24, "temperature": 0.8}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "operator.key"
    done = run("receipt-key", path)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    assert run("receipt-key", path).returncode == 2, "a key was overwritten"
    return path


@pytest.fixture(scope="module")
def server(key):
    with serving(ABACUS, "--receipts", key, "--receipts-with-tokens", name="abacus") as server:
        yield server


def verify(tmp_path, value, *words):
    """(exit code, output)."""
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(value))
    done = run("verify", path, *words)
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode, done.stdout


def test_answers_verify(server, key, tmp_path):
    public = "%s.pub" % key
    bodies = [("/v1/chat/completions", CHAT), ("/v1/chat/completions", {**CHAT, "n": 3, "seed": 7}),
              ("/v1/completions", {"prompt": ["1 + 1 =", "Question: 2 + 3? Answer:"], "max_tokens": 12, "temperature": 1.0, "n": 2}),
              ("/v1/completions", {"prompt": "Question: 4 + 4? Answer:", "max_tokens": 30, "stop": ["\n", "8"], "logit_bias": {"11": 1.5},
                                   "repetition_penalty": 1.1, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "presence_penalty": 0.2}),
              ("/v1/messages", {**CHAT, "model": "abacus"}),
              ("/v1/responses", {"input": "What is 5 + 6?", "max_output_tokens": 16})]
    for path, body in bodies:
        status, answer = server.post(path, body)
        assert status == 200, answer
        receipt = answer["receipt"]
        assert receipt["model"] == "abacus" and receipt["version"] == 1
        code, text = verify(tmp_path, answer, "--model", ABACUS, "--public-key", public)
        assert code == 0, (path, text)
        assert "bit for bit" in text
    # Verifies the receipt without a key file: with one thread, and then without the model.
    code, text = verify(tmp_path, receipt, "--model", ABACUS, "--threads", "1")
    assert code == 0 and "of the key in the receipt" in text
    code, text = verify(tmp_path, receipt)
    assert code == 3 and "only the signature" in text


def stream(server, path, body):
    status, _, text = server.request("POST", path, {**body, "stream": True})
    assert status == 200
    lines = [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_streams_verify(server, key, tmp_path):
    for path, body in [("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "3 + 3 =", "max_tokens": 9}),
                       ("/v1/chat/completions", {**CHAT, "stream_options": {"include_usage": True}}),
                       ("/v1/messages", {**CHAT, "model": "abacus"})]:
        events = stream(server, path, body)
        assert [("receipt" in event) for event in events] == [False] * (len(events) - 1) + [True]
        assert verify(tmp_path, events[-1], "--model", ABACUS)[0] == 0
    last = stream(server, "/v1/responses", {"input": "What is 5 + 6?", "max_output_tokens": 16})[-1]["response"]
    assert verify(tmp_path, last, "--model", ABACUS)[0] == 0


def test_changes_are_found(server, key, tmp_path):
    receipt = server.post("/v1/chat/completions", CHAT)[1]["receipt"]
    for path in (["model"], ["created"], ["weights"], ["prompts", 0, "sampling", "temperature"], ["choices", 0, "sha256"],
                 ["profile", "isa"], ["signature"], ["prompts", 0, "token_ids"]):
        changed = json.loads(json.dumps(receipt))
        place = changed
        for step in path[:-1]:
            place = place[step]
        old = place[path[-1]]
        place[path[-1]] = old + 1 if isinstance(old, (int, float)) else old[:-1] if isinstance(old, list) else "A" * len(old)
        code, text = verify(tmp_path, changed)
        assert code == 1 and "signature" in text, (path, text)
    other = tmp_path / "other.key"
    assert run("receipt-key", other).returncode == 0
    code, text = verify(tmp_path, receipt, "--public-key", "%s.pub" % other)
    assert code == 1 and "another key" in text


def test_what_cannot_be_told(server, key, tmp_path):
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    receipt = server.post("/v1/chat/completions", {**CHAT, "response_format": schema})[1]["receipt"]
    assert receipt["also"] == ["constraint"]
    code, text = verify(tmp_path, receipt, "--model", ABACUS)
    assert code == 3 and "constraint" in text
    receipt = server.post("/v1/chat/completions", CHAT)[1]["receipt"]
    code, text = verify(tmp_path, receipt, "--model", ABACUS, "--cpu-isa", "reference")
    assert code == 3 and "profiles differ" in text and "isa" in text


def test_another_instruction_set(key, tmp_path):
    """A machine verifies receipts of every instruction set that it supports, by computing with that instruction set."""
    for isa in ("avx2", "reference"):
        if isa != "reference" and isa not in run("doctor").stdout:
            continue
        with serving(ABACUS, "--receipts", key, "--receipts-with-tokens", "--cpu-isa", isa) as server:
            receipt = server.post("/v1/chat/completions", {**CHAT, "max_tokens": 8})[1]["receipt"]
        assert receipt["profile"]["isa"] == isa
        code, text = verify(tmp_path, receipt, "--model", ABACUS)
        assert code == 0 and "bit for bit" in text


def test_portable_receipts():
    """A receipt that was signed on an x86-64 CPU with AVX-512. Every other CPU must compute the same bits."""
    for name in ("chat.json", "completions.json"):
        done = run("verify", PORTABLE / name, "--model", ABACUS, "--public-key", PORTABLE / "test.key.pub")
        assert done.returncode == 0 and "bit for bit" in done.stdout, (name, done.stdout, done.stderr)
        assert '"isa":"portable"' in done.stdout


def test_portable_answers(key, tmp_path):
    with serving(ABACUS, "--receipts", key, "--receipts-with-tokens", "--arithmetic", "portable") as server:
        for temperature in (0, 1.0):
            receipt = server.post("/v1/chat/completions", {**CHAT, "temperature": temperature, "max_tokens": 48})[1]["receipt"]
            assert receipt["profile"]["isa"] == "portable"
            code, text = verify(tmp_path, receipt, "--model", ABACUS)
            assert code == 0 and "bit for bit" in text
            code, text = verify(tmp_path, receipt, "--model", ABACUS, "--cpu-isa", "reference")
            assert code == 3 and "profiles differ" in text
    done = run("serve", ABACUS, "--arithmetic", "portable", "--cpu-isa", "reference", "--port", "0")
    assert done.returncode == 2 and "contradict each other" in done.stderr
    done = run("serve", ABACUS, "--arithmetic", "portable", "--device", "emulated", "--port", "0")
    assert done.returncode == 2 and "works only on the CPU" in done.stderr


def test_other_weights(server, tmp_path):
    model = tmp_path / "other"
    shutil.copytree(ABACUS, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "comment": 1}))
    receipt = server.post("/v1/chat/completions", CHAT)[1]["receipt"]
    code, text = verify(tmp_path, receipt, "--model", model)
    assert code == 1 and "weights: expected sha256:" in text


def test_without_tokens(key, tmp_path):
    """If the receipt has no token ids, the request's body replaces them."""
    with serving(ABACUS, "--receipts", key) as server:
        receipt = server.post("/v1/chat/completions", CHAT)[1]["receipt"]
    assert "token_ids" not in receipt["prompts"][0] and "token_ids" not in receipt["choices"][0]
    code, text = verify(tmp_path, receipt, "--model", ABACUS)
    assert code == 3 and "--request FILE" in text
    body = tmp_path / "body.json"
    body.write_text(json.dumps(CHAT))
    code, text = verify(tmp_path, receipt, "--model", ABACUS, "--request", body)
    assert code == 0, text
    body.write_text(json.dumps({**CHAT, "messages": [{"role": "user", "content": "What is 12 + 31?"}]}))
    code, text = verify(tmp_path, receipt, "--model", ABACUS, "--request", body)
    assert code == 1 and "prompt 0" in text


def test_wrong_key_files(key, tmp_path):
    loose = tmp_path / "loose.key"
    shutil.copy(key, loose)
    loose.chmod(0o644)
    done = run("serve", ABACUS, "--receipts", loose, "--port", "0")
    assert done.returncode == 2 and "chmod 600" in done.stderr
    public = tmp_path / "pub"
    shutil.copy("%s.pub" % key, public)
    public.chmod(0o600)
    done = run("serve", ABACUS, "--receipts", public, "--port", "0", "--check")
    assert done.returncode == 3 and "Ed25519" in done.stderr
