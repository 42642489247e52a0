"""Servers with LoRA adapters, compared with peft in float32 (tests/data/adapters). Adapters are selected by name, loaded at run time, and
loaded from a folder. Also tests errors."""
import json
import shutil
import signal
import threading

import pytest

from serving import DATA, PATIENCE_S, at_once, events, run, serving, wait_until

QWEN3 = DATA / "checkpoints" / "qwen3-bf16"
ADAPTERS = DATA / "adapters"
LINEAR, STABILIZED = ADAPTERS / "qwen3-linear", ADAPTERS / "qwen3-stabilized"
COMMON = ["--dtype", "float32", "--max-model-len", 256, "--max-num-seqs", 16, "--enable-lora"]
# The longer prompts do not fit into one step.
CHUNKS = ["--max-num-batched-tokens", 24]
RUNTIME = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


def golden(folder):
    return json.loads((folder / "golden.json").read_text())["cases"]


def ask(server, model, prompt, **fields):
    """(tokens, their logprobs, the model named in the answer)."""
    body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 1, "ignore_eos": True,
            "return_token_ids": True, **fields}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    choice = answer["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], answer["model"]


def check_golden(server, model, folder):
    """Compares the first token's logprob, and the greedy tokens up to the first token whose margin is small."""
    for case in golden(folder):
        tokens, logprobs, named = ask(server, model, case["prompt"])
        assert named == model
        for token, expected, margin in zip(tokens, case["greedy"], case["margin"]):
            if margin < 1e-3:
                break
            assert token == expected
        assert abs(logprobs[0] - max(case["top_logprobs"][-1])) < 1e-3


def refusal(status, answer):
    assert status >= 400, answer
    return status, answer["error"]["type"], answer["error"]["message"]


def test_two_adapters_and_the_base_at_once():
    modules = ["linear=%s" % LINEAR, json.dumps({"name": "stable", "path": str(STABILIZED), "base_model_name": "m"})]
    with serving(QWEN3, *COMMON, *CHUNKS, "--max-loras", 2, "--lora-modules", *modules) as server:
        check_golden(server, "m", QWEN3)
        check_golden(server, "linear", LINEAR)
        check_golden(server, "stable", STABILIZED)
        # The answers have the same bits alone and with concurrent requests.
        prompts = [case["prompt"] for case in golden(LINEAR)]
        jobs = [(model, prompt) for prompt in prompts for model in ("m", "linear", "stable")]
        alone = [ask(server, *job) for job in jobs]
        assert alone[-1] != alone[-2] != alone[-3]
        assert at_once([lambda job=job: ask(server, *job) for job in jobs * 2]) == alone * 2
        status, text = server.get("/v1/models")
        base, linear, stable = json.loads(text)["data"]
        assert (base["id"], base["parent"]) == ("m", None)
        assert (linear["id"], linear["root"], linear["parent"], linear["object"]) == ("linear", str(LINEAR), "m", "model")
        assert (stable["id"], stable["parent"]) == ("stable", "m")
        assert refusal(*server.post("/v1/completions", {"model": "x", "prompt": "a"})) == (
            404, "NotFoundError", "The model `x` does not exist. This server has: m. LoRA adapters: linear, stable.")
        # Other endpoints also select the adapter.
        status, answer = server.post("/v1/chat/completions", {"model": "linear", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2})
        assert (status, answer["model"]) == (200, "linear")
        status, _, raw = server.request("POST", "/v1/completions", {"model": "stable", "prompt": [7, 8], "max_tokens": 2, "stream": True})
        assert {event["model"] for event in events(raw) if event != "[DONE]"} == {"stable"}
        status, answer = server.post("/v1/responses", {"model": "linear", "input": "a", "max_output_tokens": 2})
        assert (status, answer["model"]) == (200, "linear")
        status, answer = server.post("/tokenize", {"model": "linear", "prompt": "a"})
        assert status == 200
        idle = 'vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} '
        wait_until(lambda: idle in server.get("/metrics")[1].decode(), "adapters in use when no request is")
        # The route exists only if the variable is set.
        status, answer = server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(LINEAR)})
        assert status == 404 and "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in answer["detail"]


@pytest.mark.parametrize("flags", [["-tp", 2, "--tensor-parallel-mode", "exact"], ["-pp", 2, "--tensor-parallel-mode", "exact"], ["-dp", 2]])
def test_adapters_on_ranks_and_engines(flags):
    prompts = [case["prompt"] for case in golden(LINEAR)]
    jobs = [(model, prompt) for prompt in prompts for model in ("m", "linear", "stable")]
    modules = ["linear=%s" % LINEAR, "stable=%s" % STABILIZED]
    with serving(QWEN3, *COMMON, *CHUNKS, "--max-cpu-loras", 2, "--lora-modules", *modules) as server:
        expected = [ask(server, *job) for job in jobs]
    with serving(QWEN3, *COMMON, *CHUNKS, "--max-cpu-loras", 2, "--lora-modules", modules[0], *flags, env=RUNTIME) as server:
        status, _, text = server.request("POST", "/v1/load_lora_adapter", {"lora_name": "stable", "lora_path": str(STABILIZED)})
        assert status == 200, text
        assert at_once([lambda job=job: ask(server, *job) for job in jobs * 2]) == expected * 2
        assert server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "linear"})[0] == 200
        assert server.post("/v1/completions", {"model": "linear", "prompt": "a"})[0] == 404
        assert ask(server, *jobs[2]) == expected[2]


def test_load_and_unload_at_run_time(tmp_path):
    with serving(QWEN3, *COMMON, "--max-cpu-loras", 2, program="vllm", env=RUNTIME) as server:
        def load(name, path, **fields):
            return server.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **fields})

        def refused(name, path, **fields):
            status, _, raw = load(name, path, **fields)
            return refusal(status, json.loads(raw))

        def unload(name):
            return server.request("POST", "/v1/unload_lora_adapter", {"lora_name": name})

        check_golden(server, "m", QWEN3)
        status, _, text = load("a", LINEAR)
        assert (status, text) == (200, b"Success: LoRA adapter 'a' added successfully.")
        check_golden(server, "a", LINEAR)
        assert refused("a", STABILIZED) == (
            400, "InvalidUserInput", "The lora adapter 'a' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.")
        check_golden(server, "a", LINEAR)
        assert load("a", STABILIZED, load_inplace=True)[0] == 200
        check_golden(server, "a", STABILIZED)
        assert refused("m", LINEAR) == (400, "InvalidUserInput", "The lora adapter 'm' conflicts with a served base model.")
        assert refused("", LINEAR) == (400, "InvalidUserInput", "Both 'lora_name' and 'lora_path' must be provided.")
        assert refused("b", tmp_path / "none") == (
            404, "NotFoundError", "Loading lora b failed: No adapter found for %s" % (tmp_path / "none"))
        # More adapters than fit into memory.
        assert [load(name, LINEAR)[0] for name in "bcd"] == [200] * 3
        for name in "bcd":
            check_golden(server, name, LINEAR)
        check_golden(server, "a", STABILIZED)
        assert [card["id"] for card in json.loads(server.get("/v1/models")[1])["data"]] == list("mabcd")
        # A broken adapter is a client error, and does not affect other streams.
        prompt = golden(LINEAR)[2]["prompt"]
        expected = ask(server, "a", prompt)
        cut = shutil.copytree(STABILIZED, tmp_path / "cut")
        content = (cut / "adapter_model.safetensors").read_bytes()
        (cut / "adapter_model.safetensors").write_bytes(content[:-7])
        dora = shutil.copytree(STABILIZED, tmp_path / "dora")
        config = json.loads((dora / "adapter_config.json").read_text())
        (dora / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
        for path, words in ((ADAPTERS / "llama-vocabulary", "different base model"), (ADAPTERS / "phi3-fused", "no module"),
                            (cut, "adapter_model.safetensors"), (dora, "use_dora")):
            answers = at_once([lambda path=path: refused("e", path)] + [lambda: ask(server, "a", prompt)] * 3)
            assert answers[0][0] == 400 and words in answers[0][2], answers[0]
            assert answers[1:] == [expected] * 3
        status, answer = server.post("/v1/load_lora_adapter", {"lora_name": "e"})
        assert status == 400 and "lora_path" in answer["error"]["message"]
        status, _, text = unload("b")
        assert (status, text) == (200, b"Success: LoRA adapter 'b' removed successfully.")
        status, _, raw = unload("b")
        assert refusal(status, json.loads(raw)) == (404, "NotFoundError", "The lora adapter 'b' cannot be found.")
        assert server.post("/v1/completions", {"model": "b", "prompt": "a"})[0] == 404
        assert ask(server, "a", prompt) == expected


def test_requests_wait_for_a_slot():
    """The server has one adapter slot: requests for two adapters take turns, while requests for the base model continue."""
    modules = ["linear=%s" % LINEAR, "stable=%s" % STABILIZED]
    with serving(QWEN3, *COMMON, "--max-loras", 2, "--lora-modules", *modules) as server:
        prompts = [case["prompt"] for case in golden(LINEAR)]
        jobs = [(model, prompt) for prompt in prompts for model in ("m", "linear", "stable")]
        expected = [ask(server, *job) for job in jobs]
    with serving(QWEN3, *COMMON, program="vllm", env=RUNTIME) as server:
        for name, folder in (("linear", LINEAR), ("stable", STABILIZED)):
            assert server.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})[0] == 200
        assert at_once([lambda job=job: ask(server, *job) for job in jobs * 3]) == expected * 3
        # Streams also wait while another adapter uses the slot.
        def stream(model):
            body = {"model": model, "prompt": prompts[1], "max_tokens": 100, "stream": True, "ignore_eos": True}
            status, _, raw = server.request("POST", "/v1/completions", body)
            return status, {event["model"] for event in events(raw) if event != "[DONE]"}
        assert at_once([lambda model=model: stream(model) for model in ("linear", "stable") * 3]) == [(200, {"linear"}), (200, {"stable"})] * 3
        idle = 'running_lora_adapters="",waiting_lora_adapters=""} '
        wait_until(lambda: idle in server.get("/metrics")[1].decode(), "adapters in use when no request is")


def tells_of_its_drain(server):
    """Whether /health is 503. A connection that sent no request before the drain began is closed instead."""
    try:
        return server.get("/health")[0] == 503
    except ConnectionError:
        return False


@pytest.mark.parametrize("fields", [{}, {"use_beam_search": True, "n": 2}], ids=["sampled", "beams"])
def test_a_drain_finishes_requests_that_wait_for_a_slot(fields):
    """Requests that wait for a slot were accepted, so the drain finishes them."""
    modules = ["linear=%s" % LINEAR, "stable=%s" % STABILIZED]
    with serving(QWEN3, *COMMON, "--max-loras", 1, "--max-cpu-loras", 1, "--max-num-queued-reqs", 2, "--shutdown-timeout", PATIENCE_S,
                 "--lora-modules", *modules) as server:
        def complete(model, **fields):
            return server.post("/v1/completions", {"model": model, "prompt": "a", "ignore_eos": True, **fields})

        long = threading.Thread(target=complete, args=("linear",), kwargs={"prompt": ["a"] * 8, "max_tokens": 200, "n": 16})
        long.start()
        wait_until(lambda: b'running_lora_adapters="linear"' in server.get("/metrics")[1], "nothing runs")
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(complete("stable", max_tokens=4, **fields)))
        waiting.start()
        wait_until(lambda: b'waiting_lora_adapters="stable"' in server.get("/metrics")[1], "nothing waits")
        assert refusal(*complete("m"))[0] == 503
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: tells_of_its_drain(server), "no drain")
        assert long.is_alive(), "nothing is left to wait for"
        long.join()
        waiting.join()
        assert answers[0][0] == 200, answers
        assert [choice["finish_reason"] for choice in answers[0][1]["choices"]] == ["length"] * (2 if fields else 1)
        assert server.process.wait(PATIENCE_S) == 0


def test_adapters_in_a_folder(tmp_path):
    shutil.copytree(LINEAR, tmp_path / "linear")
    shutil.copytree(ADAPTERS / "llama-vocabulary", tmp_path / "other")
    (tmp_path / "empty").mkdir()
    env = {**RUNTIME, "VLLM_LORA_RESOLVER_CACHE_DIR": str(tmp_path)}
    with serving(QWEN3, *COMMON, env=env) as server:
        check_golden(server, "linear", LINEAR)
        assert [card["id"] for card in json.loads(server.get("/v1/models")[1])["data"]] == ["m", "linear"]
        assert refusal(*server.post("/v1/completions", {"model": "other", "prompt": "a"})) == (
            400, "BadRequestError", "LoRA adapter 'other' was found but could not be loaded.")
        for name in ("empty", "../" + tmp_path.name + "/linear", str(tmp_path / "linear"), "./linear", "linear/../linear"):
            assert server.post("/v1/completions", {"model": name, "prompt": "a"})[0] == 404


def test_a_quantized_base(tmp_path):
    folder = ADAPTERS / "qwen3-fp8"
    base = shutil.copytree(DATA / "checkpoints" / "qwen3-modelopt-fp8", tmp_path / "base")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(QWEN3 / name, base)
    with serving(base, *COMMON, "--kv-cache-dtype", "float32", "--lora-modules", "a=%s" % folder) as server:
        check_golden(server, "a", folder)


DEVICE = ["--device", "emulated", "--enable-lora", "--max-lora-rank", 8, "--max-model-len", 256, "--max-num-seqs", 8, "--max-num-batched-tokens", 24]


def check_near_golden(server, model, folder):
    """Compares the first token's logprob with a tolerance for bfloat16; the golden files are float32."""
    for case in golden(folder):
        _, logprobs, named = ask(server, model, case["prompt"], max_tokens=1)
        assert named == model
        assert abs(logprobs[0] - max(case["top_logprobs"][-1])) < 0.1


def test_adapters_on_a_device():
    """Adapters loaded at start and at run time, more of them than fit, with concurrent requests, and on several devices."""
    modules = ["linear=%s" % LINEAR, "stable=%s" % STABILIZED]
    jobs = [(model, case["prompt"][-12:]) for case in golden(LINEAR) for model in ("m", "linear", "stable")]
    with serving(QWEN3, *DEVICE, "--lora-modules", *modules) as server:
        check_near_golden(server, "m", QWEN3)
        check_near_golden(server, "linear", LINEAR)
        check_near_golden(server, "stable", STABILIZED)
        alone = [ask(server, *job) for job in jobs]
        assert alone[0][1] != alone[1][1] != alone[2][1]
        assert at_once([lambda job=job: ask(server, *job) for job in jobs]) == alone
        assert "adapters" in server.log() and "2 in memory at a time, of rank 8 at most, in bfloat16" in server.log()
    with serving(QWEN3, *DEVICE, "-tp", 2, "--async-scheduling", env=RUNTIME) as server:
        def load(name, path):
            status, _, raw = server.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})
            return status, raw.decode()

        assert load("linear", LINEAR)[0] == load("stable", STABILIZED)[0] == 200
        assert at_once([lambda job=job: ask(server, *job) for job in jobs]) == alone
        status, said = load("e", ADAPTERS / "llama-vocabulary")
        assert status == 400 and "different base model" in said
        assert server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "linear"})[0] == 200
        assert server.post("/v1/completions", {"model": "linear", "prompt": "a"})[0] == 404
        assert ask(server, *jobs[2]) == alone[2]


def test_a_slot_of_a_device_is_filled_while_steps_overlap():
    """Requests for two adapters take turns in one slot; a step may still be in flight when a request ends."""
    modules = ["linear=%s" % LINEAR, "stable=%s" % STABILIZED]
    jobs = [(model, [prompt]) for prompt in (5, 6) for model in ("m", "linear", "stable")]
    with serving(QWEN3, *DEVICE, "--max-loras", 2, "--lora-modules", *modules) as server:
        expected = [ask(server, *job) for job in jobs]
    with serving(QWEN3, *DEVICE, "--async-scheduling", "--max-loras", 1, "--max-cpu-loras", 2, "--lora-modules", *modules) as server:
        assert "1 in memory at a time" in server.log()
        assert at_once([lambda job=job: ask(server, *job) for job in jobs * 2]) == expected * 2


def test_embeddings_of_an_adapter():
    with serving(QWEN3, *COMMON, "--runner", "pooling", "--convert", "embed", "--lora-modules", "a=%s" % LINEAR) as server:
        def embed(model):
            status, answer = server.post("/v1/embeddings", {"model": model, "input": [5, 6, 7]})
            assert (status, answer["model"]) == (200, model)
            return answer["data"][0]["embedding"]

        assert embed("m") == embed("m") != embed("a") == embed("a")


@pytest.mark.parametrize("flags, words", [
    (["--enable-lora", "--lora-modules", "a=%s" % (ADAPTERS / "phi3-fused")], ["LoRA adapter 'a'", "no module"]),
    (["--enable-lora", "--max-lora-rank", 1, "--lora-modules", "a=%s" % LINEAR], ["max_lora_rank 1"]),
    (["--enable-lora", "--lora-modules", "a"], ["--lora-modules", "name=folder"]),
    (["--enable-lora", "--lora-modules", '{"name": "a"}'], ["--lora-modules", "a folder"]),
    (["--enable-lora", "--lora-modules", "m=%s" % LINEAR], ["conflicts with a served base model"]),
    (["--enable-lora", "--lora-modules", "a=%s" % LINEAR, "a=%s" % LINEAR], ["two adapters have the name 'a'"]),
    (["--lora-modules", "a=%s" % LINEAR], ["--enable-lora"]),
    (["--enable-lora", "--device", "emulated", "--lora-modules", "a=%s" % (ADAPTERS / "phi3-fused")], ["LoRA adapter 'a'", "no module"]),
    (["--enable-lora", "--max-loras", 3, "--max-cpu-loras", 2], ["max_cpu_loras (2)"]),
])
def test_refused_at_start(flags, words):
    ended = run("serve", QWEN3, "--served-model-name", "m", "--host", "127.0.0.1", "--port", 0, *flags)
    assert ended.returncode != 0
    for word in words:
        assert word in ended.stderr + ended.stdout


def test_paths_too_long_for_a_file_are_refused(tmp_path):
    """The path of the folder is short enough for the system, but the paths of its files are not."""
    shutil.copytree(LINEAR, tmp_path / "a")
    with serving(QWEN3, *COMMON, env=RUNTIME) as server:
        statuses = []
        for length in range(4040, 4100, 3):
            path = str(tmp_path / "a")
            path += "/." * ((length - len(path)) // 2)
            status, _, text = server.request("POST", "/v1/load_lora_adapter", {"lora_name": "x%d" % length, "lora_path": path})
            statuses.append(status)
            assert status in (200, 400, 404), text
        assert statuses[0] == 200 and statuses[-1] == 404 and 400 in statuses, statuses
        assert ask(server, "m", "a")
