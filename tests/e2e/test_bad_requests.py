"""Bad requests get a 4xx in OpenAI's error format; the server stays up, and other requests are unaffected."""
import json
import socket

import pytest

from serving import ABACUS, PATIENCE_S, at_once, serving

GOOD = {"model": "m", "prompt": "Tom has 3", "max_tokens": 4, "temperature": 0}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def completion(**fields):
    return "/v1/completions", json.dumps({**GOOD, **fields})


def chat(**fields):
    return "/v1/chat/completions", json.dumps({**CHAT, **fields})


def raw(path, body):
    return path, body


CASES = {
    "no JSON": (raw("/v1/completions", "{"), {400}),
    "not an object": (raw("/v1/completions", "[1]"), {400, 422}),
    "NaN": (raw("/v1/completions", '{"model":"m","prompt":"x","temperature":NaN}'), {400}),
    "deeply nested": (raw("/v1/completions", '{"model":"m","prompt":' + "[" * 100000 + "]" * 100000 + "}"), {400}),
    "invalid UTF-8": (raw("/v1/completions", b'{"model":"m","prompt":"\xff\xfe"}'), {400}),
    "no prompt": (raw("/v1/completions", '{"model":"m"}'), {400, 422}),
    "empty prompt list": (completion(prompt=[]), {400}),
    "wrong type": (completion(max_tokens="many"), {400, 422}),
    "temperature": (completion(temperature=-0.5), {400}),
    "top_p": (completion(top_p=1.5), {400}),
    "n": (completion(n=0), {400}),
    "max_tokens": (completion(max_tokens=0), {400}),
    "too many logprobs": (completion(logprobs=500), {400}),
    "unknown model": (completion(model="other"), {404}),
    "unknown model in chat": (chat(model="other"), {404}),
    "token outside the vocabulary": (completion(prompt=[1, 2, 99999999]), {400}),
    "negative token": (completion(prompt=[-5]), {400}),
    "prompt too long": (completion(prompt=[5] * 5000), {400}),
    "10 MB prompt": (completion(prompt="a b " * 2500000), {400, 413}),
    "messages of wrong type": (chat(messages="hi"), {400, 422}),
    "message without a role": (chat(messages=[{"content": "x"}]), {400, 422}),
    "template that raises": (chat(chat_template="{{ raise_exception('no way') }}"), {400}),
    "template that loops": (chat(chat_template="{% for i in range(100000000) %}{% for j in range(100000000) %}x{% endfor %}{% endfor %}"), {400}),
    "template that explodes": (chat(chat_template="{{ 'x' * 10000000000 }}"), {400}),
    "template that is none": (chat(chat_template="{% if %}"), {400}),
    "unknown route": (raw("/v1/nothing", "{}"), {404}),
}


@pytest.fixture(scope="module")
def server():
    with serving(ABACUS, "--max-model-len", 2048, "--trust-request-chat-template") as server:
        server.want = server.complete("Anna has 12 pens.", max_tokens=8)["text"]
        yield server


@pytest.mark.parametrize("case", CASES)
def test_refused(server, case):
    (path, body), statuses = CASES[case]
    status, answer = server.post(path, body)
    assert status in statuses, answer
    if case in ("deeply nested", "invalid UTF-8", "unknown route"):
        assert isinstance(answer["detail"], str)  # vllm serve uses this form for errors before the request is parsed
        return
    error = answer["error"]
    assert isinstance(error["message"], str) and error["message"]
    assert error["code"] == status and "type" in error and "param" in error


def test_fields_are_named(server):
    for field, value in {"temperature": -0.5, "top_p": 1.5, "max_tokens": "many"}.items():
        _, answer = server.post(*completion(**{field: value}))
        assert field in json.dumps(answer["error"]), answer


def test_neighbours_are_untouched(server):
    jobs = [lambda c=c: server.post(*CASES[c][0]) and None for c in list(CASES)[:12]]
    good = [lambda: server.complete("Anna has 12 pens.", max_tokens=8)["text"] for _ in range(4)]
    assert at_once(jobs + good)[-4:] == [server.want] * 4
    assert server.get("/health")[0] == 200


def test_broken_http(server):
    for head in (b"NONSENSE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -4\r\n\r\n",
                 b"GET /health HTTP/1.1\r\n" + b"X: " + b"y" * (3 << 20) + b"\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as client:
            try:
                client.sendall(head)
                reply = client.recv(4096)
            except OSError:
                reply = b""
            assert reply == b"" or reply.startswith(b"HTTP/1.1 4") or reply.startswith(b"HTTP/1.1 5"), reply
    assert server.get("/health")[0] == 200
