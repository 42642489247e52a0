"""Malicious requests, by the ids of the cases in docs/security.md; the survival check follows each test."""
import contextlib
import json
import os
import random
import re
import socket
import threading
import time

import pytest
import raw_http
from survival import Survival

from serving import ABACUS, at_once, events, serving

BODY_LIMIT = 1 << 20
VOCABULARY = json.loads((ABACUS / "config.json").read_text())["vocab_size"]
GOOD = {"/v1/completions": {"model": "m", "prompt": "Tom has 3", "max_tokens": 4, "temperature": 0},
        "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
        "/tokenize": {"model": "m", "prompt": "Tom has 3"},
        "/detokenize": {"model": "m", "tokens": [5, 6]}}
# Memory addresses, source files and paths, which would reveal internals.
INSIDE = re.compile(r"0x[0-9a-f]{6,}|\.(cc|cpp|h|hpp|so)\b|(?<![\w.])/(usr|home|root|tmp|work|etc|proc|src|build)/")


@pytest.fixture(scope="module")
def shared():
    with serving(ABACUS, "--max-model-len", 1024, "--max-request-bytes", BODY_LIMIT, "--trust-request-chat-template") as server:
        yield Survival(server)


@pytest.fixture
def server(shared):
    yield shared.server
    shared.check()


def refused(server, path, body, statuses=(400,)):
    """The request must be rejected with an error in OpenAI's format that reveals no internals."""
    status, _, text = server.request("POST", path, body)
    assert status in statuses, (status, text[:500], repr(body)[:200])
    check_error(status, text)
    return text.decode()


def check_error(status, text):
    words = text.decode()
    answer = json.loads(words)
    if status in (404, 405, 415) or "detail" in answer:
        assert answer.get("detail") or answer["error"]["message"]
    else:
        assert answer["error"]["message"] and answer["error"]["code"] == status
    assert not INSIDE.search(words), words[:500]


def outcome(server, path, body):
    """The request may succeed or be rejected, but nothing else."""
    status, _, text = server.request("POST", path, body)
    assert status in (200, 400, 404, 422), (status, text[:500], repr(body)[:300])
    if status != 200:
        check_error(status, text)
    return status


def test_p04_v82_json(server):
    """Depth, keys, numbers and encodings at the limits of JSON."""
    good = json.dumps(GOOD["/v1/completions"]).encode()
    for bad in [b'{"a":' * depth + b"1" + b"}" * depth for depth in (200, 10_000, 100_000)] + \
               [b"[" * depth for depth in (1, 200, 100_000, 1_000_000)] + \
               [good + b"x", good + good, good[:-1], good + b"\0", b"\0" + good, b"", b" ",
                good.replace(b"Tom", b"\xc0\xaf"), good.replace(b"Tom", b"\xed\xa0\x80"), good.replace(b"Tom", b"\xf8\x88\x80\x80\x80"),
                good.replace(b"Tom", b"a\x01b"), good.replace(b'"m"', b'"\\x41"'), good.replace(b"4", b"0x4"), good.replace(b"4", b"04"),
                good.replace(b"4", b"4."), good.replace(b"4", b"+4"), good.replace(b"4", b"1e400"), good.replace(b"4", b"NaN"),
                good.replace(b'"', b"'"), good.replace(b",", b",,"), good.replace(b"}", b",}"), b"nul", b"tru", b'"text"', b"1"]:
        status, _, text = server.request("POST", "/v1/completions", bad)
        assert status in (400, 422), (status, bad[:60])
        check_error(status, text)
    assert server.post("/v1/completions", b"\xef\xbb\xbf" + good)[0] == 200  # Python's JSON parser skips a byte order mark
    # The last of several equal keys counts, as in Python; a body with 10^5 keys is accepted.
    many = b'{"model":"m","max_tokens":9,"max_tokens":2,"prompt":"Tom"' + b"".join(b',"k%d":1' % i for i in range(60_000)) + b"}"
    status, answer = server.post("/v1/completions", many)
    assert status in (200, 400), answer
    assert server.post("/v1/completions", b'{"model":"m","prompt":"\\ud800 Tom","max_tokens":1}')[0] in (200, 400)


def test_p05_v83_body_sizes(server):
    """Bodies above the limit get 413 with every framing; bodies at the limit do not."""
    def padded(size):
        text = json.dumps({**GOOD["/v1/completions"], "max_tokens": 1}).encode()
        return text + b" " * (size - len(text))

    for size, want in ((BODY_LIMIT - 1, 200), (BODY_LIMIT, 200), (BODY_LIMIT + 1, 413), (BODY_LIMIT * 8, 413)):
        body = padded(size)
        pieces = [body[i:i + 50_000] for i in range(0, size, 50_000)]
        for data in (raw_http.post("/v1/completions", body, "Connection: close"),
                     raw_http.chunked("/v1/completions", pieces, "Connection: close")):
            assert raw_http.status_of(raw_http.send_and_read(server, data)) == want, (size, data[:150])
    huge = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
    assert raw_http.status_of(raw_http.send_and_read(server, huge)) == 413
    assert raw_http.status_of(raw_http.send_and_read(server, huge.replace(b"999\r", b"9" * 30 + b"\r"))) in (400, 413)
    for coding in ("gzip", "deflate", "br"):
        answer = raw_http.send_and_read(server, raw_http.post("/v1/completions", b"\x1f\x8b" * 50, "Content-Encoding: " + coding,
                                                              "Connection: close"))
        assert raw_http.status_of(answer) in (400, 415), answer[:200]


def test_p06_v80_v81_chunks_and_headers(server):
    body = json.dumps(GOOD["/v1/completions"]).encode() + b" " * 100_000
    one_by_one = raw_http.chunked("/v1/completions", [body[i:i + 1] for i in range(len(body))], "Connection: close")
    assert raw_http.status_of(raw_http.send_and_read(server, one_by_one)) in (200, 400, 413)
    fields = b"".join(b"X-%d: y\r\n" % i for i in range(100_000))
    answer = raw_http.send_and_read(server, b"GET /health HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n")
    assert raw_http.status_of(answer) in (400, 431, 0), answer[:100]
    with raw_http.connect(server) as client:  # a line that never ends
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: ")
        end = time.monotonic() + 20
        with pytest.raises(ConnectionError):
            while time.monotonic() < end:
                client.sendall(b"y" * (1 << 20))


def test_p07_pipelining_and_half_close(server):
    body = {**GOOD["/v1/completions"], "max_tokens": 1}
    for half_close in (True, False):
        last = raw_http.post("/v1/completions", body, *([] if half_close else ["Connection: close"]))
        data = b"".join(b"GET /v1/models?%d HTTP/1.1\r\nHost: x\r\n\r\n" % i + raw_http.post("/tokenize", {"model": "m", "prompt": "a" * i})
                        for i in range(1, 50)) + last
        answer = raw_http.send_and_read(server, data, half_close=half_close)
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 99, answer[:300]
        assert [int(n) for n in re.findall(rb'"count":\s*(\d+)', answer)] == \
               sorted(int(n) for n in re.findall(rb'"count":\s*(\d+)', answer))
        assert answer.rfind(b"text_completion") > answer.rfind(b'"count"')
    with raw_http.connect(server) as client:
        request = raw_http.post("/v1/completions", body, "Expect: 100-continue", "Connection: close")
        head, rest = request.split(b"\r\n\r\n", 1)
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.sendall(rest)
        assert b"text_completion" in raw_http.read_all(client)


def test_p08_streams(server):
    """Streams are complete: valid UTF-8, the same text as unstreamed, one [DONE] at the end."""
    seeds = random.Random(8)

    def one(number):
        prompt = [seeds.randrange(3, VOCABULARY) for _ in range(1 + number % 20)]
        body = {"model": "m", "prompt": prompt, "max_tokens": 24, "seed": number, "temperature": 2.0, "ignore_eos": True,
                "stop": [["a"], [" ", "the"], None][number % 3]}
        whole = server.post("/v1/completions", body)[1]["choices"][0]
        status, _, text = server.request("POST", "/v1/completions", {**body, "stream": True})
        got = events(text)
        assert status == 200 and got.count("[DONE]") == 1 and got[-1] == "[DONE]"
        assert "".join(chunk["choices"][0]["text"] for chunk in got[:-1]) == whole["text"]
        assert [chunk["choices"][0]["finish_reason"] for chunk in got[:-1]][-1] == whole["finish_reason"]

    at_once([lambda i=i: one(i) for i in range(60)])


VALUES = [None, "", [], {}, True, -1, 0, 1.5, 2**31, 2**63, -2**63, 1e308, "x" * 3000, [None], {"a": {"b": []}}, [1, "a"]]


def test_p12_v28_v64_fields(server):
    """Every field in the OpenAPI description, and a few others, with values of every type."""
    schemas = json.loads(server.get("/openapi.json")[1])
    jobs = []
    for path, good in GOOD.items():
        schema = schemas["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        while "$ref" in schema:
            schema = schemas["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        names = set(good)
        for part in [schema, *schema.get("anyOf", []), *schema.get("allOf", [])]:
            while "$ref" in part:
                part = schemas["components"]["schemas"][part["$ref"].rsplit("/", 1)[1]]
            names |= set(part.get("properties", {}))
        assert len(names) >= 2
        jobs += [(path, {**good, name: value}) for name in sorted(names | {"prompt_embeds", "unknown_field"}) for value in VALUES
                 if (name, value) != ("stream", True)]

    def part(first):
        for path, body in jobs[first::4]:
            outcome(server, path, body)

    at_once([lambda i=i: part(i) for i in range(4)])
    assert len(jobs) > 1000


def test_v20_prompts_of_nothing(server):
    for prompt in ("", [], [""], [[]], [[], [1]], " ", "\n", None, {}, [None], [{}], 5, True):
        outcome(server, "/v1/completions", {**GOOD["/v1/completions"], "prompt": prompt})
    for prompt in ([], [[]], None, {}, 5, True):
        refused(server, "/v1/completions", {**GOOD["/v1/completions"], "prompt": prompt}, (400, 422))
    for messages in ([], [{}], [[]], [None], [{"role": "user"}], [{"role": "", "content": ""}], [{"role": "user", "content": []}], None, "x"):
        outcome(server, "/v1/chat/completions", {**GOOD["/v1/chat/completions"], "messages": messages})


def test_v21_fan_out(server):
    """Excessive numbers of answers and prompts are rejected before any is computed."""
    for n in (0, -1, 16_385, 10**9, 2**63, 1e308, "many", [1]):
        refused(server, "/v1/completions", {**GOOD["/v1/completions"], "n": n}, (400, 422))
    refused(server, "/v1/completions", {**GOOD["/v1/completions"], "prompt": [[1]] * 200_000}, (400, 422))
    for field in ({"stop": ["a"] * 1000}, {"bad_words": ["a"] * 100_000}, {"logprobs": 10**6}, {"prompt_logprobs": 10**6}):
        refused(server, "/v1/completions", {**GOOD["/v1/completions"], **field}, (400, 422))


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
                                   "length_penalty"])
def test_v23_numbers_that_are_none(server, field):
    beams = ', "use_beam_search": true' if field == "length_penalty" else ""
    good = json.dumps(GOOD["/v1/completions"]).replace("}", '%s, "%s": VALUE}' % (beams, field))
    for value in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"NaN"', '"Infinity"', "true", "null", "1e-320", "-0.0", "1e308"):
        status = outcome(server, "/v1/completions", good.replace("VALUE", value))
        if value in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"NaN"', '"Infinity"'):
            assert status in (400, 422), (field, value)


def test_v24_features_together(server):
    """Each pair of features occurs in at least one request."""
    features = {"n": [1, 2], "logprobs": [None, 3], "prompt_logprobs": [None, 2], "echo": [False, True], "stream": [False, True], "seed": [None, 5],
                "temperature": [0, 1.5], "presence_penalty": [0, 2], "repetition_penalty": [1, 1.7], "min_tokens": [0, 3],
                "stop": [None, ["a"]], "logit_bias": [None, {"7": 50}], "bad_words": [None, ["the"]], "ignore_eos": [False, True],
                "use_beam_search": [False, True], "min_p": [0, 0.3], "top_k": [0, 1], "allowed_token_ids": [None, [7, 8, 9]],
                "truncate_prompt_tokens": [None, 2], "add_special_tokens": [True, False], "return_token_ids": [False, True]}
    seeds = random.Random(24)
    bodies = []
    for _ in range(60):
        chosen = {name: seeds.choice(values) for name, values in features.items()}
        bodies.append({**GOOD["/v1/completions"], "max_tokens": 5, **{k: v for k, v in chosen.items() if v is not None}})
    names = sorted(features)
    pairs = {(a, b) for i, a in enumerate(names) for b in names[i + 1:]}
    met = {(a, b) for body in bodies for a, b in pairs if body.get(a) == features[a][1] and body.get(b) == features[b][1]}
    assert met == pairs
    taken = at_once([lambda b=b: outcome(server, "/v1/completions", b) for b in bodies])
    # Beam search with streams or penalties is rejected, so send all bodies again without beam search.
    plain = [{**body, "use_beam_search": False} for body in bodies]
    taken += at_once([lambda b=b: outcome(server, "/v1/completions", b) for b in plain])
    assert taken.count(200) >= 20, taken


def test_v25_ids_outside_the_vocabulary(server):
    for bad in (-1, VOCABULARY, VOCABULARY + 1, 2**31, 2**32, 2**63, -2**63, 2**64):
        for field in ({"prompt": [5, bad]}, {"prompt": [[5], [bad]]}, {"logit_bias": {str(bad): 1}}, {"allowed_token_ids": [bad]}):
            refused(server, "/v1/completions", {**GOOD["/v1/completions"], **field}, (400, 422))
        outcome(server, "/v1/completions", {**GOOD["/v1/completions"], "stop_token_ids": [bad]})
        outcome(server, "/detokenize", {"model": "m", "tokens": [bad]})


def test_v26_special_tokens_in_text(server):
    tokenizer = json.loads((ABACUS / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"][:4]:
        for text in (token["content"], token["content"] * 50, "a%sb" % token["content"]):
            assert outcome(server, "/v1/completions", {**GOOD["/v1/completions"], "prompt": text}) == 200
            assert outcome(server, "/v1/chat/completions", {**GOOD["/v1/chat/completions"], "messages": [{"role": "user", "content": text}]}) == 200


def test_v03_v27_code_and_tensors(server):
    """Requests cannot contain code or tensors, or change what a start option sets."""
    for name, value in (("prompt_embeds", "gASVJAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAl0b3VjaCAvdG1wlIWUUpQu"),
                        ("logits_processors", ["os.system"]), ("custom_logit_processor", "__import__('os').system('id')"),
                        ("lora_request", {"path": "/etc"}), ("model_path", "/etc"), ("trust_remote_code", True), ("chat-template", "/etc/passwd")):
        outcome(server, "/v1/completions", {**GOOD["/v1/completions"], name: value})
    refused(server, "/v1/completions", {"model": "m", "prompt_embeds": "AAAA", "max_tokens": 1}, (400, 422))
    for route in ("/update_weights_from_tensor", "/v1/load_lora_adapter", "/v1/files", "/v1/unload_lora_adapter", "/collective_rpc", "/api/pull"):
        assert server.request("POST", route, {"name": "x", "path": "/etc"})[0] in (400, 404, 405, 501)


def test_v31_detokenize(server):
    refused(server, "/detokenize", {"model": "m", "tokens": [5] * 300_000 + [-1]}, (400, 413, 422))
    for tokens in ([True], ["5"], [1.5], {}, "5", None, [[5]]):
        outcome(server, "/detokenize", {"model": "m", "tokens": tokens})


def test_v32_v70_parts_and_addresses(server):
    """Message parts that are not text are rejected, and no address is ever fetched."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        here = "127.0.0.1:%d" % listener.getsockname()[1]
        for url in ("http://%s/x.png" % here, "file:///etc/passwd", "http://a\\@%s/" % here, "http://2130706433:%s/" % here.split(":")[1],
                    "gopher://%s/" % here, "data:image/png;base64,AAAA", "", None, 7):
            for part in ({"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": url},
                         {"type": "video_url", "video_url": {"url": url}}, {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
                         {"type": "unheard-of", "unheard-of": url}, {"type": url}, {"image_url": url}):
                refused(server, "/v1/chat/completions", {**GOOD["/v1/chat/completions"],
                                                         "messages": [{"role": "user", "content": [part]}]}, (400, 422))
        outcome(server, "/v1/chat/completions", {**GOOD["/v1/chat/completions"],
                                                 "messages": [{"role": "user", "content": "![x](http://%s/x.png)" % here}]})
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.slow
def test_r08_v40_constraints(server):
    """Schemas, regular expressions and grammars of published vulnerabilities: accepted or rejected, but quickly."""
    shapes = [{"type": "stsring"}, {"$ref": "#"}, {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
              {"enum": ["%d" % i for i in range(20_000)]}, {"pattern": "(a+)+b"}, {"pattern": "(" * 3000}, {"minItems": 2**63}, {"anyOf": ["deep"]}, [], 7]
    deep = b'{"anyOf":[' * 5000 + b"{}" + b"]}" * 5000
    texts = ["(a+)+b", "(.*a){25}", "a{1,1000000}", "(a{1000}){1000}", "((((", "a{2,1}", "*", "(" * 30_000, "[z-a]", "\\", ""]
    grammars = ["root ::= root", "root ::= a\na ::= root", "root ::= " + "(" * 30_000, "root ::=", "", 'root ::= "a"{1,1000000}', "start: start*",
                "root ::= (root){0,}", "root ::= a{1,}\na ::= b{2,}\nb ::= a{3}", "start: A\nA: B+\nB: A~2..9", "root ::= " + '("a"' * 60 + ")*" * 60,
                "root ::= r0\n" + "".join("r%d ::= r%d | \"a\"\n" % (i, i + 1) for i in range(20_000)) + 'r20000 ::= "c"']
    fields = [{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": shape}}} for shape in shapes]
    fields += [{"structured_outputs": {"regex": text}} for text in texts] + [{"structured_outputs": {"grammar": text}} for text in grammars]
    tags = [{"type": "grammar", "grammar": text} for text in grammars]
    for _ in range(80):
        tags.append({"type": "star", "content": tags[-1]})
    fields += [{"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": tag})}} for tag in tags]
    fields += [{"structured_outputs": {"choice": value}} for value in ([], [""], ["a"] * 20_000, "a", [1])]
    fields += [{"tools": [{"type": "function", "function": {"name": "f", "parameters": shape}}], "tool_choice": "required"} for shape in shapes]
    for field in fields:
        outcome(server, "/v1/chat/completions", json.dumps({**GOOD["/v1/chat/completions"], **field}).encode().replace(b'{"anyOf": ["deep"]}', deep))


def test_r08_slow_constraints_delay_nobody(server):
    """32 sequences with an ambiguous grammar, whose number of parses grows, do not delay a concurrent stream."""
    def longest_pause(beside):
        body = json.dumps({"model": "m", "prompt": "Tom has 3", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
        pauses = []
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
            client.sendall(raw_http.post("/v1/completions", body, "Connection: close"))
            client.recv(1 << 16)
            with beside():
                last = time.monotonic()
                while client.recv(1 << 16):
                    pauses.append(time.monotonic() - last)
                    last = time.monotonic()
        assert len(pauses) > 10
        return max(pauses)

    @contextlib.contextmanager
    def slow():
        body = {**GOOD["/v1/completions"], "n": 32, "max_tokens": 200, "temperature": 1, "ignore_eos": True,
                "structured_outputs": {"grammar": "root ::= s\ns ::= s s | [a-z] | [^a] | s s s"}}
        answers = []
        thread = threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/completions", body, timeout=300)))
        thread.start()
        yield
        thread.join()
        status, _, text = answers[0]
        assert status in (200, 400), text
        if status == 400:
            check_error(status, text)

    alone = longest_pause(contextlib.nullcontext)
    assert longest_pause(slow) < alone + 1.5


HOSTILE_TEMPLATES = [
    "{{ ''.__class__.__mro__ }}", "{{ messages.__class__.__subclasses__() }}", "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__}'.format(messages) }}", "{{ ('%s' % messages).__init__.__globals__ }}", "{{ cycler.__init__.__globals__.os.popen('id') }}",
    "{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{% extends 'x' %}", "{{ range(1000000000)|list|length }}", "{{ 'a' * 1000000000 }}",
    "{% set ns = namespace(x='a' * 100) %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{{ 1 " + "+ 1 " * 100_000 + "}}", "{% if %}", "{% unknown %}", "{{ " * 1000, "{{ 9 ** 99999999 }}"]


def test_r09_v04_v50_v51_request_templates(server):
    for template in HOSTILE_TEMPLATES:
        text = refused(server, "/v1/chat/completions", {**GOOD["/v1/chat/completions"], "chat_template": template})
        assert "root:" not in text and "uid=" not in text
    for name in ("tokenize", "chat_template", "tools", "documents", "messages", "conversation", "continue_final_message", "padding",
                 "truncation", "max_length", "return_tensors", "return_dict", "bos_token", "add_generation_prompt"):
        for value in (True, "{{ 1 }}", [], {"a": [[]]}):
            outcome(server, "/v1/chat/completions", {**GOOD["/v1/chat/completions"], "chat_template_kwargs": {name: value}})


def test_v62_bodies_of_browsers(server):
    """Content types that a page of another origin may send without a preflight request."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        status, _, text = server.request("POST", "/v1/completions", json.dumps(GOOD["/v1/completions"]).encode(), only_headers={"Content-Type": kind})
        assert status in (400, 415, 422), (kind, status, text[:200])


def test_v71_paths(server):
    for path in ("/../../../../etc/passwd", "/v1/models/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/..%2f..%2fetc%2fpasswd",
                 "/static/../etc/passwd", "/docs/../../etc/passwd", "//etc/passwd", "/v1/models/%00"):
        answer = raw_http.send_and_read(server, b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
        assert raw_http.status_of(answer) in (400, 404), answer[:200]
        assert b"root:" not in answer
    refused(server, "/v1/completions", {**GOOD["/v1/completions"], "model": "../../etc/passwd"}, (404,))


def test_v84_http2_is_not_spoken(server):
    answer = raw_http.send_and_read(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" * 100)
    assert raw_http.status_of(answer) in (0, 400, 505)
    upgrade = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    assert b" 101 " not in raw_http.send_and_read(server, upgrade).split(b"\r\n")[0]


def test_v65_log_lines(server):
    """No client text begins a log line or moves the terminal's cursor."""
    mark = "forged%d" % os.getpid()
    evil = "\r\n\n\x1b[2J\u2028INFO:     %s" % mark
    server.request("POST", "/v1/completions", {**GOOD["/v1/completions"], "model": evil, "user": evil})
    server.request("GET", "/%0d%0a%1b[2J{0}?a=%0d%0a{0}".format(mark))
    server.request("GET", "/health", headers={"X-Request-Id": "a\tb" + mark, "User-Agent": "\x7f" + mark})
    server.get("/health")
    for line in server.log().splitlines():
        assert not line.lstrip().startswith(("INFO:     " + mark, mark)), line
        assert "\x1b" not in line.replace("\x1b[0m", "").replace("\x1b[32m", "").replace("\x1b[31m", ""), line


def test_f10_many_scrapers(server):
    """Scrapers that never read their answers, and many that do, delay no other client."""
    with raw_http.connect(server, receive_buffer=4096) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 300)
        stop = threading.Event()

        def scrape():
            while not stop.is_set():
                assert server.get("/metrics")[0] == 200

        def work():
            try:
                return [server.complete("Anna has 12 pens.", max_tokens=8)["text"] for _ in range(8)]
            finally:
                stop.set()

        answers = at_once([scrape, scrape, scrape, work])[-1]
        assert len(set(answers)) == 1
