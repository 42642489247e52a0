"""Each allocation and each call of the system of each thread that serves fails once, by itself: its request may fail, nothing else is
harmed, and no answer is another."""
import errno
import http.client
import json
import time

import pytest
from survival import Survival
from test_faults import Switch

from serving import ABACUS, events, serving

PROMPT = "Anna has 12 pens and buys 7."
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}},
                                                                         "required": ["a"]}}}
CHAT = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 8}
COMPLETION = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "ignore_eos": True}
# A request of each kind that has code of its own on the way.
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
THREADS = ["worker", "http", "engine", "access-log"]
PATIENCE_S = 20
# Where one request has more places for a fault than this, every n-th is tried.
MOST_FAULTS = 150


def ask(server, kind):
    """(status, what is said) or None where the connection was cut."""
    path, body = REQUESTS[kind]
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
    """The answer without what differs from request to request; None for a stream that ended with an error or early."""
    if not REQUESTS[kind][1].get("stream"):
        answer = json.loads(text)
        return json.dumps([answer.get(key) for key in ("choices", "output", "tokens")], sort_keys=True) if "error" not in answer else None
    chunks = events(text)
    if not chunks or "error" in str(chunks[-1])[:40] or "error" in str(chunks[-2:]):
        return None
    if kind == "messages":
        return "".join(chunk.get("delta", {}).get("text", "") for chunk in chunks) if chunks[-1].get("type") == "message_stop" else None
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1] if chunk["choices"]) if chunks[-1] == "[DONE]" else None


def same(kind, got, want):
    if kind in ("tools", "responses"):  # ids are drawn
        return got is not None
    return got == want


def try_all(server, switch, call, thread):
    """Faults tried, and those at which the request failed."""
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
            ask(server, kind)  # what is made at a first use
        survival = Survival(server)
        tried, failed = try_all(server, switch, "new", thread)
        print("%s: %d allocations failed, %d requests with them" % (thread, tried, failed))
        assert tried > {"worker": 1000, "engine": 300, "http": 100, "access-log": 5}[thread], tried
        assert failed or thread == "access-log"
        survival.check()


@pytest.mark.parametrize("call", ["recv", "send", "epoll_ctl", "epoll_wait"])
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
