"""`sluice shadow` forwards to another server, byte for byte, and judges the answers. In these tests, the other server is sluice with other
options."""
import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import pytest

from serving import ABACUS, Server, command, end, events, run, serving, wait_until

READY = re.compile(r"forwarding to \S+ from http://127\.0\.0\.1:(\d+)")
QUESTIONS = [json.loads(line)["question"] for line in (ABACUS / "heldout.jsonl").read_text().splitlines()]
SECRET = "sk-the-key-of-a-client"


class Shadow(Server):
    def report(self):
        return json.loads((self.folder / "report.json").read_text())

    def finish(self):
        """Ends the program after all waiting answers are compared; returns the report."""
        assert self.stop() == 0, self.log()
        return self.report()


@contextlib.contextmanager
def shadowing(folder, upstream, *flags, model=ABACUS, env=None):
    log = tempfile.NamedTemporaryFile("w", suffix=".log")  # noqa: SIM115
    process = subprocess.Popen(command("shadow", model, "--upstream", upstream, "--host", "127.0.0.1", "--port", 0, "--report", folder,
                                       *flags), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    try:
        def port():
            text = pathlib.Path(log.name).read_text(errors="replace")
            assert process.poll() is None, text
            found = READY.search(text)
            return found and int(found[1])
        shadow = Shadow(process, wait_until(port, "no port"), log.name)
        shadow.folder = pathlib.Path(folder)
        yield shadow
    finally:
        end(process)
        log.close()


def ask(server, count=12, path="chat", **fields):
    for i in range(count):
        body = {"model": "m", "temperature": 0, "max_tokens": 48, "stream": i % 2 == 1, **fields}
        if path == "chat":
            body["messages"] = [{"role": "user", "content": QUESTIONS[i]}]
        else:
            body["prompt"] = "Question: %s\nAnswer:" % QUESTIONS[i]
        status, _, text = server.request("POST", "/v1/chat/completions" if path == "chat" else "/v1/completions", body)
        assert status == 200, text


def verdicts(report):
    return {name: count for name, count in report["verdicts"].items() if count}


def altered(tmp_path, change, name="altered"):
    """A copy of the bundled model with one file changed."""
    folder = tmp_path / name
    shutil.copytree(ABACUS, folder)
    change(folder)
    return folder


@pytest.fixture(scope="module")
def upstream():
    with serving(ABACUS) as server:
        yield server


def test_equal_answers(upstream, tmp_path):
    with shadowing(tmp_path, upstream.url) as shadow:
        ask(shadow)
        ask(shadow, path="completions", stop=["\n"])
        ask(shadow, 6, temperature=0.9, top_p=0.95, n=2)
        ask(shadow, 4, return_token_ids=True, logprobs=True)
        ask(shadow, 4, response_format={"type": "json_object"})
        report = shadow.finish()
    assert verdicts(report) == {"equal": 44}, report
    assert report["dropped"] == 0 and report["failed"] == 0 and report["not_judged"] == {} and report["worst"] == []
    assert report["sampled_answers"]["tokens"] > 100 and abs(report["sampled_answers"]["deviations"]) < 5
    assert report["largest_logprob_difference"] < 0.1
    page = (tmp_path / "report.html").read_text()
    assert "<h1>sluice shadow</h1>" in page and "<script" not in page
    assert (tmp_path / "report.json").stat().st_mode & 0o077 == 0


def test_another_dtype(upstream, tmp_path):
    """The upstream computes in float32, the shadow in BF16: with a wide epsilon, every difference counts as a tie."""
    with serving(ABACUS, "--dtype", "float32") as other, shadowing(tmp_path, other.url, "--epsilon", "2") as shadow:
        for mark in ("", "!!", "??"):
            for i in range(40):
                body = {"prompt": "%d %s %s" % (i, mark, QUESTIONS[i][: 7 + i]), "temperature": 0, "max_tokens": 40, "return_token_ids": True}
                assert shadow.post("/v1/completions", body)[0] == 200
        report = shadow.finish()
    assert set(verdicts(report)) == {"equal", "tie"}, report
    tie = report["worst"][0]
    assert tie["verdict"] == "tie" and 0 <= tie["gap_nats"] <= 2 and "token" in tie["detail"]


def test_other_numbers(tmp_path):
    """The upstream has another RoPE base. Its answers differ, and the logprobs requested from it show a real difference."""
    with serving(ABACUS, "--hf-overrides", '{"rope_theta": 20000.0}') as other, shadowing(tmp_path, other.url) as shadow:
        ask(shadow, 12)
        report = shadow.finish()
    assert verdicts(report).get("real", 0) > 0, report
    worst = report["worst"][0]
    assert worst["verdict"] == "real" and worst["gap_nats"] > 0.1
    assert worst["nearer_to_reference"] == "ours" and "asked for at that token" in worst["evidence"]


def test_another_template(tmp_path):
    template = "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | upper }}<|eot_id|>{% endfor %}" \
               "<|start_header_id|>assistant<|end_header_id|>\n\n"
    with serving(ABACUS, "--chat-template", template) as other, shadowing(tmp_path, other.url) as shadow:
        ask(shadow)
        report = shadow.finish()
    assert verdicts(report) == {"template": 12}, report
    assert "upstream" in report["worst"][0]["detail"] and report["worst"][0]["answer"] == "equal"


def test_another_template_by_its_length_alone(tmp_path):
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with serving(ABACUS, "--chat-template", template) as other, shadowing(tmp_path, other.url, "--no-ask-upstream") as shadow:
        ask(shadow, 4, stream=False)
        report = shadow.finish()
    assert verdicts(report) == {"template": 4}, report
    assert report["worst"][0]["evidence"] == "numbers of tokens"


def test_another_tokenizer(tmp_path):
    def without_merges(folder):
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:100]
        path.write_text(json.dumps(tokenizer))
    with serving(altered(tmp_path, without_merges)) as other, shadowing(tmp_path / "report", other.url) as shadow:
        ask(shadow, 6)
        ask(shadow, 6, path="completions")
        report = shadow.finish()
    assert verdicts(report) == {"tokenizer": 12}, report


def test_another_sampler(tmp_path):
    """Sends greedy requests to a server with a default penalty, and sampled requests to a server that ignores top_k."""
    with serving(ABACUS, "--override-generation-config", '{"repetition_penalty": 30.0}') as other, \
            shadowing(tmp_path / "greedy", other.url) as shadow:
        ask(shadow)
        report = shadow.finish()
    found = verdicts(report)
    assert found.get("sampling", 0) >= 6 and set(found) <= {"equal", "tie", "sampling"}, report
    with serving(ABACUS) as other, changed_by_proxy(other.url, {"top_k": 0, "temperature": 2.0}) as url, \
            shadowing(tmp_path / "drawn", url) as shadow:
        ask(shadow, temperature=1.0, top_k=2)
        report = shadow.finish()
    assert verdicts(report).get("sampling", 0) >= 3, report


@contextlib.contextmanager
def changed_by_proxy(url, fields, keys=None):
    """A proxy that changes fields of requests and appends their paths and keys to `keys`."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            text = self.rfile.read(int(self.headers["content-length"]))
            body = json.loads(text)
            if keys is not None:
                keys.append((self.path, self.headers["authorization"]))
            if "messages" in body and self.path.endswith("completions"):
                body.update(fields)
            host = url.removeprefix("http://")
            connection = http.client.HTTPConnection(host, timeout=300)
            connection.request("POST", self.path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("content-type"))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            connection.close()

        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://127.0.0.1:%d" % server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_answers_are_forwarded_as_they_are(upstream, tmp_path):
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTIONS[0]}], "temperature": 0, "max_tokens": 24}
    with shadowing(tmp_path, upstream.url) as shadow:
        def both(method, path, body=None, volatile=()):
            answers = []
            for server in (upstream, shadow):
                status, headers, text = server.request(method, path, body)
                for word in volatile:
                    text = re.sub(word, b"", text)
                answers.append((status, headers.get("content-type"), text))
            assert answers[0] == answers[1], (path, answers)
        volatile = (rb'"id":\s*"[^"]*"', rb'"created":\s*\d+')
        both("POST", "/v1/chat/completions", body, volatile)
        both("POST", "/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}, volatile)
        both("POST", "/v1/chat/completions", {"messages": 3})
        both("POST", "/tokenize", {"prompt": "a"})
        both("GET", "/v1/models", volatile=volatile)
        both("GET", "/no/such/path")
        assert shadow.request("HEAD", "/health")[0] == 200
        report = shadow.finish()
    assert report["forwarded"] == 7 and report["judged"] == 2


def test_keys_are_forwarded_and_kept_nowhere(tmp_path):
    with serving(ABACUS, "--api-key", SECRET) as other, shadowing(tmp_path, other.url, "--log-level", "debug") as shadow:
        body = {"model": "m", "messages": [{"role": "user", "content": QUESTIONS[0]}], "temperature": 0, "max_tokens": 24}
        assert shadow.post("/v1/chat/completions", body)[0] == 401
        assert shadow.post("/v1/chat/completions", body, headers={"Authorization": "Bearer " + SECRET})[0] == 200
        report = shadow.finish()
        assert verdicts(report) == {"equal": 1}, report
        assert SECRET not in shadow.log()
        for path in tmp_path.iterdir():
            assert SECRET not in path.read_text()


@pytest.mark.parametrize("flags, expected", [((), None), (("--api-key", "given"), "Bearer given")])
def test_questions_have_the_key_that_was_given(upstream, tmp_path, flags, expected):
    """The program must not send the key in OPENAI_API_KEY, which may be for another server."""
    keys = []
    with changed_by_proxy(upstream.url, {}, keys) as url, shadowing(tmp_path, url, *flags, env={"OPENAI_API_KEY": SECRET}) as shadow:
        ask(shadow, 2)
        shadow.finish()
    questions = {key for path, key in keys if not path.endswith("completions")}
    assert questions == {expected}, keys


def test_streams_are_not_delayed_by_comparisons(upstream, tmp_path):
    """A full queue drops comparisons, not requests: every stream is complete."""
    with shadowing(tmp_path, upstream.url, "--queue", "1", "--workers", "1") as shadow:
        wait_until(lambda: "ready in" in shadow.log(), "not loaded")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            def one(i):
                body = {"prompt": "Question: %s\nAnswer:" % QUESTIONS[i], "temperature": 0, "max_tokens": 64, "ignore_eos": True, "stream": True}
                status, _, text = shadow.request("POST", "/v1/completions", body)
                assert status == 200 and events(text)[-1] == "[DONE]"
            list(pool.map(one, range(40)))
        report = shadow.finish()
    assert report["forwarded"] == 40 and report["dropped"] > 0
    assert report["judged"] + report["dropped"] + sum(report["not_judged"].values()) == 40, report


def test_events_pass_one_by_one(upstream, tmp_path):
    """The first event of a stream arrives before the last one is sent."""
    with shadowing(tmp_path, upstream.url) as shadow, socket.create_connection(("127.0.0.1", shadow.port), timeout=300) as connection:
        body = json.dumps({"prompt": "Question:", "max_tokens": 400, "ignore_eos": True, "stream": True})
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(body), body.encode()))
        times, text = [], b""
        while b"[DONE]" not in text:
            piece = connection.recv(65536)
            assert piece
            text += piece
            times.append(time.monotonic())
        assert len(times) > 1 and times[-1] - times[0] > 0


def test_a_client_that_leaves_ends_the_answer_upstream(upstream, tmp_path):
    with shadowing(tmp_path, upstream.url) as shadow:
        with socket.create_connection(("127.0.0.1", shadow.port), timeout=300) as connection:
            body = json.dumps({"prompt": "Question:", "max_tokens": 100000, "ignore_eos": True, "stream": True})
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                               % (len(body), body.encode()))
            connection.recv(100)
        wait_until(lambda: upstream.metric("vllm:num_requests_running") == 0, "the request runs on")
        assert shadow.finish()["judged"] == 0


def test_without_an_upstream(tmp_path):
    with shadowing(tmp_path, "http://127.0.0.1:9") as shadow:
        status, answer = shadow.post("/v1/completions", {"prompt": "a"})
        assert status == 502 and "does not answer" in answer["error"]["message"]
        report = shadow.finish()
    assert report["failed"] == 1 and report["judged"] == 0


def test_private_reports(tmp_path):
    with serving(ABACUS, "--override-generation-config", '{"repetition_penalty": 30.0}') as other, \
            shadowing(tmp_path, other.url, "--report-privacy", "texts") as shadow:
        ask(shadow, 3)
        report = shadow.finish()
    assert report["worst"] and all("prompt_end" not in finding and finding["detail"] == "" for finding in report["worst"])
    name = QUESTIONS[0].split()[-3]
    assert name not in (tmp_path / "report.html").read_text() or len(name) < 5


def test_bad_options(tmp_path):
    done = run("shadow", ABACUS)
    assert done.returncode == 2 and "--upstream URL" in done.stderr
    done = run("shadow", ABACUS, "--upstream", "ftp://x")
    assert done.returncode == 2, done.stderr
