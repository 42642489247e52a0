"""Each allocation and each system call of each serving thread fails once: its request may fail, but nothing else is
affected, and no answer changes."""
import errno
import http.client
import itertools
import json
import time

import pytest
from faults import Switch
from start_faults import STARTS, fail_each_at_start
from survival import Survival
from test_traces import collecting
from thread_faults import fail_each
from thread_scenes import SCENES

from serving import ABACUS, DATA, events, serving, wait_until

PROMPT = "Anna has 12 pens and buys 7."
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}},
                                                                         "required": ["a"]}}}
CHAT = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 8}
COMPLETION = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "ignore_eos": True}
# One request for each kind with separate code.
REQUESTS = {
    "chat": ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 2}),
    "stream": ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    "tools": ("/v1/chat/completions", {**CHAT, "tools": [TOOL], "tool_choice": "required"}),
    "schema": ("/v1/chat/completions", {**CHAT, "response_format": SCHEMA}),
    "sampled": ("/v1/completions", {**COMPLETION, "n": 2, "temperature": 1, "seed": 3, "prompt_logprobs": 1, "repetition_penalty": 1.1}),
    "beams": ("/v1/completions", {**COMPLETION, "use_beam_search": True, "n": 2, "max_tokens": 3}),
    "responses": ("/v1/responses", {"input": PROMPT, "temperature": 0, "max_output_tokens": 8}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8, "temperature": 0, "stream": True}),
    "tokenize": ("/tokenize", {"prompt": PROMPT}),
}
# The threads, with the minimum number of allocations to test in each. With fewer, the test has missed some.
THREADS = {"worker": 1000, "http": 100, "engine": 300, "access-log": 5, "constraints": 100}
ADAPTER = DATA / "adapters" / "qwen3-linear"
SERIAL = itertools.count()
PATIENCE_S = 20
# Longer than the interval at which spans are sent.
SPANS_S = 1.5
# If a request has more calls than this, only every n-th call is tested.
MOST_FAULTS = 150


def ask(server, kind):
    """(status, content of the answer), or None if the connection was cut."""
    path, body = REQUESTS[kind]
    if kind == "schema":  # a new limit, so that the schema is compiled again
        body = json.loads(json.dumps(body))
        body["response_format"]["json_schema"]["schema"]["properties"]["a"]["maximum"] = 10**9 + next(SERIAL)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", path, json.dumps({"model": "m", **body}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, said(kind, reply.read())
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def said(kind, text):
    """The answer without parts that differ between requests; None for a stream that ended early or with an error."""
    if not REQUESTS[kind][1].get("stream"):
        answer = json.loads(text)
        return json.dumps([answer.get(key) for key in ("choices", "output", "tokens")], sort_keys=True) if "error" not in answer else None
    chunks = events(b"\n".join(line for line in text.split(b"\n") if not line.startswith(b"event:")))
    if not chunks or "error" in str(chunks[-1])[:40] or "error" in str(chunks[-2:]):
        return None
    if kind == "messages":
        return "".join(chunk.get("delta", {}).get("text", "") for chunk in chunks) if chunks[-1].get("type") == "message_stop" else None
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1] if chunk["choices"]) if chunks[-1] == "[DONE]" else None


def same(kind, got, want):
    if kind in ("tools", "responses"):  # ids are random
        return got is not None
    return got == want


def try_all(server, switch, call, thread):
    """(number of faults tried, number of failed requests)."""
    tried = failed = 0
    for kind in REQUESTS:
        want = ask(server, kind)
        assert want is not None and want[0] == 200, (kind, want)
        switch.arm(call, thread, 2**62)
        ask(server, kind)
        time.sleep(0.05)
        count = switch.count()
        switch.set(False)
        for nth in range(1, count + 1, max(1, count // MOST_FAULTS)):
            switch.arm(call, thread, nth)
            where = "%s %d of %d on %s for %s" % (call, nth, count, thread, kind)
            try:
                got = ask(server, kind)
            except TimeoutError:
                pytest.fail("no answer: " + where + "\n" + server.log()[-3000:])
            switch.set(False)
            assert server.process.poll() is None, where + ": the server ended: " + server.log()[-3000:]
            tried += 1
            if got is None or got[0] != 200 or got[1] is None:
                assert got is None or got[0] in (200, 500, 503), (where, got)
                failed += 1
            else:
                assert same(kind, got[1], want[1]), (where, got, want)
    return tried, failed


@pytest.mark.parametrize("thread", THREADS)
def test_f01_each_allocation_of_a_serving_thread_fails_once(fault_shim, tmp_path, thread):
    switch = Switch(tmp_path / "switch", False)
    with serving(ABACUS, "--max-model-len", 512, "--threads", 1, "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                 env={**fault_shim, "FAULT_SWITCH": str(switch.path)}) as server:
        for kind in REQUESTS:
            ask(server, kind)  # allocations at the first use
        survival = Survival(server)
        tried, failed = try_all(server, switch, "new", thread)
        print("%s: %d allocations failed, %d requests with them" % (thread, tried, failed))
        assert tried > THREADS[thread], tried
        assert failed or thread == "access-log"
        survival.check()


def load_and_ask(server):
    """Loads an adapter, sends it a request and unloads it. Returns the statuses of load and request (0: connection cut), and the tokens."""
    def post(path, body):
        try:
            status, _, text = server.request("POST", path, body, timeout=PATIENCE_S)
            return status, text
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            return 0, b""

    status, _ = post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(ADAPTER)})
    asked, text = post("/v1/completions", {**COMPLETION, "model": "x", "return_token_ids": True}) if status == 200 else (None, b"")
    post("/v1/unload_lora_adapter", {"lora_name": "x"})
    return status, asked, json.loads(text)["choices"][0]["token_ids"] if asked == 200 else None


@pytest.mark.parametrize("thread", ["worker", "kv-events", "spans"])
def test_f01_each_allocation_of_a_thread_beside_it_fails_once(fault_shim, tmp_path, thread):
    """Failures in threads that load adapters or publish events affect no other client."""
    switch = Switch(tmp_path / "switch", False)
    flags = ["--dtype", "float32", "--max-model-len", 512, "--threads", 1, "--enable-lora", "--num-gpu-blocks-override", 40,
             "--kv-events-config", json.dumps({"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:0"})]
    environment = {**fault_shim, "FAULT_SWITCH": str(switch.path), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with collecting() as (_, url), serving(DATA / "checkpoints" / "qwen3-bf16", *flags, "--otlp-traces-endpoint", url, env=environment) as server:
        for _ in range(3):
            want = load_and_ask(server)
        assert want[:2] == (200, 200)
        survival = Survival(server)
        switch.arm("new", thread, 2**62)
        load_and_ask(server)
        count = wait_until(switch.count, "no allocation on a thread of this name")
        time.sleep(0.3)
        count = switch.count()
        failed = 0
        for nth in range(1, count + 1, max(1, count // MOST_FAULTS)):
            switch.arm("new", thread, nth)
            got = load_and_ask(server)
            if thread == "spans":  # spans are sent some time after the request, sometimes with fewer allocations
                time.sleep(SPANS_S)
            switch.set(False)
            # Unload the adapter if a failed attempt has left it loaded.
            server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "x"})
            where = "allocation %d of %d on %s: %s" % (nth, count, thread, got)
            assert server.process.poll() is None, where + ": the server ended: " + server.log()[-3000:]
            if got != want:
                failed += 1
                assert got[0] in (200, 0, 500, 503) and got[1] in (None, 0, 500, 503), where
        print("%s: %d allocations failed, %d requests with them" % (thread, count, failed))
        assert failed if thread == "worker" else not failed
        assert load_and_ask(server) == want
        survival.check()


@pytest.mark.parametrize("call", ["system"])
def test_f02_each_call_of_a_serving_thread_fails_once(fault_shim, tmp_path, call):
    switch = Switch(tmp_path / "switch", False)
    with serving(ABACUS, "--max-model-len", 512, "--threads", 1, "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                 env={**fault_shim, "FAULT_SWITCH": str(switch.path), "FAULT_ERRNO": str(errno.EIO)}) as server:
        for kind in REQUESTS:
            ask(server, kind)
        survival = Survival(server)
        total = 0
        for thread in THREADS:
            tried, failed = try_all(server, switch, call, thread)
            print("%s on %s: %d calls failed, %d requests with them" % (call, thread, tried, failed))
            total += tried
        assert total > 10, total
        survival.check()


SCENE_THREADS = [(name, thread) for name, scene in SCENES.items() for thread in scene.threads]
# Fewer faults for scenes in which each takes seconds, for a new server or for loading a model again.
MOST = {"recorder": 20, "several models": 25, "new weights": 60, "idle sleep": 60, "upkeep": 40, "rank processes": 40}


@pytest.mark.parametrize("name, thread", [one for one in SCENE_THREADS if not SCENES[one[0]].only_calls])
def test_f01_each_allocation_of_a_thread_in_a_scene_fails_once(fault_shim, tmp_path, name, thread):
    tried, _ = fail_each(fault_shim, tmp_path, name, thread, "new", MOST.get(name, MOST_FAULTS))
    assert tried


# Threads whose calls the shim replaces. The recorder writes with the C library's buffers, whose calls cannot be replaced;
# libzmq, on the thread of cache events, ends the process if a call fails.
@pytest.mark.parametrize("name, thread", [one for one in SCENE_THREADS if one[0] not in ("idle sleep", "keep alive", "matchers", "recorder")])
def test_f02_each_call_of_a_thread_in_a_scene_fails_once(fault_shim, tmp_path, name, thread):
    tried, _ = fail_each(fault_shim, tmp_path, name, thread, "system", MOST.get(name, MOST_FAULTS))
    assert tried


START_THREADS = [(name, thread) for name, start in STARTS.items() for thread in start.threads]
# Each run takes a second or two.
MOST_STARTS = 60


@pytest.mark.parametrize("name, thread", START_THREADS)
def test_f01_each_allocation_of_a_thread_at_start_fails_once(fault_shim, tmp_path, name, thread):
    tried, noticed = fail_each_at_start(fault_shim, tmp_path, name, thread, "new", MOST_STARTS)
    assert tried and noticed


@pytest.mark.parametrize("name, thread", [one for one in START_THREADS if not STARTS[one[0]].only_allocations])
def test_f02_each_call_of_a_thread_at_start_fails_once(fault_shim, tmp_path, name, thread):
    tried, _ = fail_each_at_start(fault_shim, tmp_path, name, thread, "system", MOST_STARTS)
    assert tried
