"""Several models behind one server: each is loaded when a request names it, and they share a memory budget."""
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import tempfile
import threading

import pytest

from serving import (
    ABACUS,
    DATA,
    Server,
    at_once,
    command,
    end,
    events,
    run,
    serving,
    wait_until,
    wait_until_ready,
)

CHECKPOINTS = DATA / "checkpoints"
# Each model takes about 110 MiB, so two fit.
SMALL = {"max-model-len": 256, "max-num-seqs": 4, "max-num-batched-tokens": 256, "kv-cache-memory-bytes": "96MiB"}
BUDGET = ("--models-memory", "300MiB", "--request-memory-bytes", "32MiB")
THREE = {"abacus": {"path": str(ABACUS)}, "llama": {"path": str(CHECKPOINTS / "llama-bf16")}, "qwen": {"path": str(CHECKPOINTS / "qwen3-bf16")}}


def models_file(folder, models, name="models.yaml"):
    """Writes a models file, as JSON, which is also YAML."""
    entries = [{"name": key, **entry, "options": {**SMALL, **entry.get("options", {})}} for key, entry in models.items()]
    (folder / name).write_text(json.dumps({"models": entries}, indent=1))
    return folder / name


@contextlib.contextmanager
def door(folder, models, *flags, env=None):
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(command("serve", "--models", models_file(folder, models), "--host", "127.0.0.1", "--port", 0, *BUDGET, *flags),
                                   stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        try:
            yield Server(process, wait_until_ready(process, log.name), log.name)
        finally:
            end(process)


def complete(server, model, expected=200, headers=None, **fields):
    body = {"model": model, "prompt": "Tom has 3 apples", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 2, **fields}
    status, answer = server.post("/v1/completions", body, headers=headers)
    assert status == expected, answer
    return answer["choices"][0] if status == 200 else answer["error"]


def states(server, **kw):
    cards = json.loads(server.get("/v1/models", **kw)[1])["data"]
    return {card["id"]: card["status"]["value"] for card in cards}


def counts(server, name):
    """The values of a metric of the server, by model."""
    lines = server.get("/metrics")[1].decode().splitlines()
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{model_name=")}


def test_models_come_and_go_with_the_same_answers(tmp_path):
    with door(tmp_path, THREE) as server:
        assert states(server) == {"abacus": "unloaded", "llama": "unloaded", "qwen": "unloaded"}
        status, text = server.get("/health")
        assert status == 200 and json.loads(text) == {"status": "ok", "models": {"loaded": 0, "loading": 0, "failed": 0, "unloaded": 3}}
        assert server.get("/ready")[0] == 200
        first = {name: complete(server, name) for name in THREE}
        # The least recently used model was unloaded to make room.
        assert states(server) == {"abacus": "unloaded", "llama": "loaded", "qwen": "loaded"}
        complete(server, "llama")
        assert complete(server, "abacus") == first["abacus"]
        assert states(server) == {"abacus": "loaded", "llama": "loaded", "qwen": "unloaded"}
        assert complete(server, "qwen") == first["qwen"] and complete(server, "llama") == first["llama"]
        assert counts(server, "sluice:model_loads_total") == {"abacus": 2, "llama": 2, "qwen": 2}
        check_metrics(server)
        assert complete(server, "none", expected=404)["message"] == "The model `none` does not exist. This server has: abacus, llama, qwen."
        assert complete(server, "", expected=400)["param"] == "model"
        assert server.post("/v1/completions", {"prompt": "a"})[0] == 400
        assert server.request("POST", "/v1/completions", b"{")[0] == 400
        card = json.loads(server.get("/v1/models/qwen")[1])
        assert card["id"] == "qwen" and card["max_model_len"] == 256 and server.get("/v1/models/none")[0] == 404
        assert server.stop() == 0
    with serving(ABACUS, *[word for key, value in SMALL.items() for word in ("--" + key, value)], name="abacus") as alone:
        assert complete(alone, "abacus") == first["abacus"]


def check_metrics(server):
    """Each metric family occurs once, with the samples of all models."""
    text = server.get("/metrics")[1].decode()
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert len(heads) == len(set(heads))
    samples = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line and not line.startswith("#")]
    assert len(samples) == len(set(samples))
    of_tokens = [line for line in samples if line.startswith("vllm:generation_tokens_total{")]
    assert len(of_tokens) == 3 and all(any('model_name="%s"' % name in line for line in of_tokens) for name in THREE)
    assert text.count("# TYPE process_start_time_seconds ") == 1
    current = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
        elif not line.startswith("#"):
            assert line.startswith(current), (line, current)


def test_a_draft_model_is_in_memory_once(tmp_path):
    """Two models use the same draft model. The second one shares the weights of the draft, and either may be unloaded first."""
    draft = {"speculative-config": json.dumps({"method": "draft_model", "model": str(ABACUS), "num_speculative_tokens": 3, "adaptive": False})}
    shutil.copytree(ABACUS, tmp_path / "copy")
    models = {"abacus": {"path": str(ABACUS)}, "one": {"path": str(ABACUS), "options": draft}, "two": {"path": str(tmp_path / "copy"), "options": draft}}
    with door(tmp_path, models, "--models-memory", "420MiB") as server:
        expected = complete(server, "abacus")
        assert complete(server, "one") == expected and "shares the weights" not in server.log()
        assert complete(server, "two") == expected
        wait_until(lambda: "shares the weights that another model loaded" in server.log(), "the draft is loaded twice")
        for name in ("abacus", "one", "two", "one", "abacus", "two"):
            assert complete(server, name) == expected
        proposed, accepted = (server.metric("vllm:spec_decode_num_%s_total" % name) for name in ("draft_tokens", "accepted_tokens"))
        assert accepted > 0.5 * proposed > 10, "it is a draft of the same weights"


def test_first_requests_together_load_once(tmp_path):
    with door(tmp_path, THREE) as server:
        answers = at_once([lambda: complete(server, "llama")] * 8)
        assert all(answer == answers[0] for answer in answers)
        assert counts(server, "sluice:model_loads_total")["llama"] == 1


def test_models_that_do_not_fit_together_take_turns(tmp_path):
    """Streams to two models keep both busy all the time. Each gets its turn, and answers do not change."""
    models = {name: {**entry, "options": {"kv-cache-memory-bytes": "160MiB"}} for name, entry in THREE.items() if name != "qwen"}
    with door(tmp_path, models) as server:
        expected = {name: complete(server, name) for name in models}

        def ask(name):
            for _ in range(6):
                assert complete(server, name) == expected[name]

        at_once([lambda name=name: ask(name) for name in models for _ in range(3)])
        loads = counts(server, "sluice:model_loads_total")
        assert min(loads.values()) >= 1 and sum(counts(server, "sluice:model_loaded").values()) == 1


def test_a_model_that_fails_harms_no_other(tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(CHECKPOINTS / "llama-bf16", broken)
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[:len(weights) // 2])
    huge = {"path": str(ABACUS), "options": {"kv-cache-memory-bytes": "1GiB"}}
    models = {"good": THREE["abacus"], "broken": {"path": str(broken)}, "huge": huge, "absent": {"path": "nobody/has-this"}}
    with door(tmp_path, models) as server:
        good = complete(server, "good")
        errors = at_once([lambda: complete(server, "broken", expected=500)] * 3)
        assert all("model.safetensors" in error["message"] and "`broken`" in error["message"] for error in errors)
        status, headers, text = server.request("POST", "/v1/completions", {"model": "huge", "prompt": "a"})
        assert status == 503 and "retry-after" in headers and b"memory" in text
        assert "`absent` cannot be loaded" in complete(server, "absent", expected=503)["message"]
        assert states(server) == {"good": "loaded", "broken": "failed", "huge": "failed", "absent": "failed"}
        assert complete(server, "good") == good
        status, text = server.get("/health")
        assert status == 200 and json.loads(text)["status"] == "degraded"
        assert server.metric("sluice:model_load_failures_total") == 3
        assert server.stop() == 0


@pytest.mark.slow
def test_memory_is_given_back(tmp_path):
    """With two models that do not fit into memory together, the process never becomes larger than with one of them."""
    models = {}
    for name in "ab":
        shutil.copytree(ABACUS, tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config.update(hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8, head_dim=64)
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        models[name] = {"path": str(tmp_path / name), "options": {"load-format": "dummy", "kv-cache-memory-bytes": "64MiB"}}
    with door(tmp_path, models, "--models-memory", "900MiB") as server:
        sizes = []
        for name in "abab":
            complete(server, name)
            sizes.append(resident_kib(server))
        assert sizes[0] > 300_000 and max(sizes) < 1.15 * sizes[0], sizes


def resident_kib(server):
    with open("/proc/%d/status" % server.process.pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_pinned_models_stay(tmp_path):
    models = {"abacus": {**THREE["abacus"], "pinned": True}, "llama": THREE["llama"], "qwen": THREE["qwen"]}
    with door(tmp_path, models) as server:
        assert states(server) == {"abacus": "loaded", "llama": "unloaded", "qwen": "unloaded"}
        for _ in range(2):
            complete(server, "llama")
            complete(server, "qwen")
        assert states(server) == {"abacus": "loaded", "llama": "unloaded", "qwen": "loaded"}
        assert counts(server, "sluice:model_loads_total")["abacus"] == 1


def test_every_route_finds_its_model(tmp_path):
    with door(tmp_path, {**THREE, "bert": {"path": str(CHECKPOINTS / "tiny-bert"), "options": {"max-model-len": None}}},
              "--enable-tokenizer-info-endpoint") as server:
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        assert server.post("/v1/chat/completions", {"model": "qwen", **chat})[1]["model"] == "qwen"
        status, _, raw = server.request("POST", "/v1/chat/completions", {"model": "qwen", "stream": True, **chat})
        assert status == 200 and events(raw)[-1] == "[DONE]" and events(raw)[0]["model"] == "qwen"
        assert server.post("/v1/messages", {"model": "qwen", **chat})[1]["model"] == "qwen"
        response = server.post("/v1/responses", {"model": "qwen", "input": "hi", "max_output_tokens": 16})[1]
        assert response["model"] == "qwen"
        assert len(server.post("/v1/embeddings", {"model": "bert", "input": "a"})[1]["data"]) == 1
        assert server.post("/tokenize", {"model": "llama", "prompt": "abc"})[0] == 200
        # Stored responses do not depend on which models are loaded, and another model may continue them.
        assert json.loads(server.get("/v1/responses/" + response["id"])[1])["model"] == "qwen"
        more = {"model": "abacus", "input": "and?", "previous_response_id": response["id"], "max_output_tokens": 4}
        assert server.post("/v1/responses", more)[0] == 200
        assert server.get("/tokenizer_info?model=llama")[0] == 200
        large = {"model": "qwen", "prompt": "a" * 100_000}
        assert server.post("/v1/completions", large)[0] == 400
        assert server.get("/")[0] in (200, 404) and server.get("/version")[0] == 200 and server.get("/nothing")[0] == 404


def test_models_of_every_kind_come_back(tmp_path):
    """Models with adapters, several engines, ranks, or on a device are unloaded, and give the same answers after the next load."""
    models = {"base": {**THREE["qwen"], "options": {"enable-lora": True, "lora-modules": ["linear=%s" % (DATA / "adapters" / "qwen3-linear")]}},
              "engines": {**THREE["abacus"], "options": {"data-parallel-size": 2}},
              "ranks": {**THREE["llama"], "options": {"tensor-parallel-size": 2}},
              "device": {**THREE["llama"], "options": {"device": "emulated"}}}
    with door(tmp_path, models) as server:
        assert list(states(server)) == ["base", "linear", "engines", "ranks", "device"]
        names = ["linear", "engines", "base", "ranks", "device"]
        first = {name: complete(server, name) for name in names}
        assert first["linear"] != first["base"]
        for name in reversed(names):
            assert complete(server, name) == first[name], name
        loads = counts(server, "sluice:model_loads_total")
        assert min(loads.values()) >= 1 and sum(loads.values()) > 4
        assert sum(counts(server, "sluice:model_memory_bytes").values()) <= 268 << 20
        listed = run("ps", "--url", server.url)
        assert "STATE" in listed.stdout and "unloaded" in listed.stdout, listed.stdout


def test_waiting_is_bounded(tmp_path):
    """Requests for a model wait if it needs the memory of a busy model. The number of waiting requests and their wait are limited."""
    models = {name: {**entry, "options": {"kv-cache-memory-bytes": "160MiB", "max-model-len": 60_000}} for name, entry in THREE.items() if name != "qwen"}
    models["abacus"]["priority"] = 1
    with door(tmp_path, models, "--models-wait", 3, "--models-max-waiting", 2) as server:
        short = {"prompt": "a", "max_tokens": 1}
        wait_until(lambda: server.post("/v1/completions", {"model": "abacus", **short})[0] == 200, "loaded on a slow machine, too")
        over = threading.Event()
        with long_stream(server, "abacus", over):
            answers = at_once([lambda: server.request("POST", "/v1/completions", {"model": "llama", "prompt": "a"})] * 4)
            assert [status for status, _, _ in answers] == [503] * 4 and all("retry-after" in headers for _, headers, _ in answers)
            assert sorted(b"is the limit" in text for _, _, text in answers) == [False, False, True, True]
        wait_until(lambda: server.request("POST", "/v1/completions", {"model": "llama", **short})[0] == 200, "llama's turn")


def test_clients_that_leave_while_they_wait_are_noticed(tmp_path):
    """The server detects clients that leave long before the time limit, even if they only half-close their connection."""
    models = {name: {**entry, "options": {"kv-cache-memory-bytes": "160MiB", "max-model-len": 60_000}} for name, entry in THREE.items() if name != "qwen"}
    models["abacus"]["priority"] = 1

    def waiting(server):
        return {card["id"]: card["status"]["waiting_requests"] for card in json.loads(server.get("/v1/models")[1])["data"]}["llama"]

    with door(tmp_path, models) as server:
        complete(server, "abacus", max_tokens=1)
        over = threading.Event()
        with long_stream(server, "abacus", over):
            clients = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(3)]
            for client in clients:
                client.request("POST", "/v1/completions", json.dumps({"model": "llama", "prompt": "a"}), {"Content-Type": "application/json"})
            wait_until(lambda: waiting(server) == 3, "they wait")
            for client in clients:
                client.close()
            wait_until(lambda: waiting(server) == 0, "they are still counted", 60)


@contextlib.contextmanager
def long_stream(server, model, over):
    """Keeps a stream running during the `with` block."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"model": model, "prompt": "a", "stream": True, "max_tokens": 50_000, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    assert reply.status == 200 and reply.readline().startswith(b"data:")
    reader = threading.Thread(target=lambda: drain(reply, over))
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()
        connection.close()


def drain(reply, over):
    while not over.is_set() and reply.readline():
        pass


def test_keys_of_models(tmp_path):
    models = {"ours": {**THREE["abacus"], "options": {"api-key": ["k-ours"]}}, "all": THREE["llama"]}
    (tmp_path / "keys").write_text("k-file\n")
    with door(tmp_path, models, "--api-key", "k-all", "--api-key-file", tmp_path / "keys") as server:
        def key(word):
            return {"Authorization": "Bearer " + word, "Content-Type": "application/json"}

        complete(server, "ours", headers=key("k-ours"))
        complete(server, "all", headers=key("k-all"))
        complete(server, "all", headers=key("k-file"))
        for model, word in (("ours", "k-all"), ("ours", "k-file"), ("all", "k-ours"), ("ours", "k")):
            assert server.request("POST", "/v1/completions", {"model": model, "prompt": "a"}, headers=key(word))[0] == 401
        assert list(states(server, headers=key("k-ours"))) == ["ours"] and list(states(server, headers=key("k-all"))) == ["all"]
        assert server.get("/v1/models")[0] == 401


def test_stored_responses_of_a_model_without_a_key(tmp_path):
    models = {"ours": {**THREE["abacus"], "options": {"api-key": ["k-ours"]}}, "open": THREE["llama"]}
    with door(tmp_path, models, "--enable-response-store") as server:
        status, answer = server.post("/v1/responses", {"model": "open", "input": "a", "max_output_tokens": 2})
        assert status == 200, answer
        assert server.get("/v1/responses/%s?model=open" % answer["id"])[0] == 200
        assert server.get("/v1/responses/" + answer["id"])[0] == 200


def test_an_adapter_takes_no_name_of_another_model(tmp_path):
    adapter = str(DATA / "adapters" / "qwen3-linear")
    models = {"one": {**THREE["qwen"], "options": {"enable-lora": True}}, "two": {**THREE["qwen"], "options": {"enable-lora": True}}}
    with door(tmp_path, models, env={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}) as server:
        def load(model, name):
            status, _, text = server.request("POST", "/v1/load_lora_adapter?model=" + model, {"lora_name": name, "lora_path": adapter})
            return status, text

        assert load("one", "extra")[0] == 200
        for name in ("extra", "one"):
            status, text = load("two", name)
            assert status == 400 and b"another model of this server" in text and b"lora_name" in text, text
        assert load("two", "more")[0] == 200
        complete(server, "extra"), complete(server, "more")


def test_openai_client(tmp_path):
    openai = pytest.importorskip("openai")
    with door(tmp_path, THREE) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
        assert [model.id for model in client.models.list()] == list(THREE)
        for name in THREE:
            stream = client.completions.create(model=name, prompt="a", max_tokens=3, stream=True)
            assert {chunk.model for chunk in stream} == {name}
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="none", prompt="a")


@pytest.mark.parametrize("text, problem", [
    ("models: [", "models.yaml:"),
    ("", "expected a list called models"),
    ("models: []", "the list is empty"),
    ("modles: []", "did you mean models"),
    ("models: [{name: a}]", "model 'a': path is missing"),
    ("models: [{path: %(abacus)s}]", "model 1: name is missing"),
    ("models:\n- {name: a, path: %(abacus)s}\n- {name: a, path: %(abacus)s}", "models.yaml:3: two models are called 'a'"),
    ("models: [{name: a, path: ./nowhere}]", "nowhere"),
    ("models: [{name: a, path: %(abacus)s, pined: true}]", "unknown key 'pined', did you mean pinned"),
    ("models: [{name: a, path: %(abacus)s, pinned: 3x}]", "pinned: expected true or false"),
    ("models: [{name: a, path: %(abacus)s, options: {prt: 1}}]", "unknown key 'prt'"),
    ("models:\n- name: a\n  path: %(abacus)s\n  options:\n    port: 80", "models.yaml:5: model 'a': options: port belongs to the server"),
    ("models: [{name: a, path: %(abacus)s, options: {arithmetic: portable}}]", "options: arithmetic belongs to the server"),
    ("models: [{name: a, path: %(abacus)s, options: {cpu-isa: avx2}}]", "options: cpu-isa belongs to the server"),
    ("models: [{name: a, path: %(abacus)s, options: {served-model-name: b}}]", "served-model-name: requests address the model by the entry's name"),
    ("models: [{name: a, path: %(abacus)s, options: {dtype: float8}}]", "dtype"),
    ("models: [{name: a, path: %(abacus)s, options: {api-key: ''}}]", "api-key: expected keys, found an empty one"),
    ("models: [{name: a, path: %(abacus)s, options: {api-key: []}}]", "api-key: expected keys, found an empty one"),
    ("models: [{name: a, path: %(abacus)s, options: {enable-auto-tool-choice: true}}]", "requires --tool-call-parser"),
])
def test_faults_of_the_file_are_told(tmp_path, text, problem):
    (tmp_path / "models.yaml").write_text(text % {"abacus": ABACUS} if "%" in text else text)
    done = run("serve", "--models", "models.yaml", "--port", 0, cwd=tmp_path)
    assert done.returncode not in (0, 1) and problem in done.stderr + done.stdout, done.stderr


def test_recordings_and_receipts_of_each_model(tmp_path):
    """A model that was unloaded and loaded again has two recordings, and each can be replayed."""
    key = tmp_path / "operator.key"
    assert run("receipt-key", key).returncode == 0
    with door(tmp_path, THREE, "--record", tmp_path / "flight", "--receipts", key, "--receipts-with-tokens") as server:
        for model in ("abacus", "llama", "qwen", "abacus"):
            status, answer = server.post("/v1/completions", {"model": model, "prompt": "Tom has 3 apples", "max_tokens": 12})
            assert status == 200, answer
            assert answer["receipt"]["model"] == model
            (tmp_path / ("%s.json" % model)).write_text(json.dumps(answer))
    for model, entry in THREE.items():
        done = run("verify", tmp_path / ("%s.json" % model), "--model", entry["path"], "--public-key", "%s.pub" % key)
        assert done.returncode == 0, (model, done.stdout, done.stderr)
        done = run("replay", tmp_path / "flight" / model, "--json")
        assert done.returncode == 0, (model, done.stdout, done.stderr)
        assert json.loads(done.stdout)[0]["answers"] == 1
    assert len(os.listdir(tmp_path / "flight" / "abacus")) == 2


def test_recordings_of_weights_without_a_digest(tmp_path):
    """Without receipts, a recording need not identify its weights."""
    shutil.copytree(ABACUS, tmp_path / "dummy", ignore=shutil.ignore_patterns("*.safetensors"))
    models = {"dummy": {"path": str(tmp_path / "dummy"), "options": {"load-format": "dummy"}}}
    with door(tmp_path, models, "--record", tmp_path / "flight") as server:
        complete(server, "dummy")
        assert server.stop() == 0
    (flight,) = (tmp_path / "flight" / "dummy").iterdir()
    assert b'"weights":null' in flight.read_bytes()


def test_recordings_that_would_mix_are_refused(tmp_path):
    file = models_file(tmp_path, {"a/b": THREE["abacus"], "a_b": THREE["abacus"]})
    assert run("serve", "--models", file, "--check", *BUDGET).returncode == 0
    done = run("serve", "--models", file, "--record", tmp_path / "flight", "--check", *BUDGET)
    assert done.returncode != 0 and "model 'a_b': its recordings would be in" in done.stderr, done.stderr


def test_check(tmp_path):
    done = run("serve", "--models", models_file(tmp_path, THREE), "--check", *BUDGET)
    assert done.returncode == 0 and "qwen: takes" in done.stdout, done.stderr
    both = run("serve", ABACUS, "--models", models_file(tmp_path, THREE))
    assert both.returncode != 0 and "also given: add it to the file" in both.stderr
