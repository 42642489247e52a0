"""Many clients, slow peers, and starvation. The names contain the ids of the cases in docs/security.md. The tests use smaller numbers than
that page, so that two cores need only seconds. Random choices come from seeds."""
import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
import raw_http
from survival import Survival, resident_bytes

from serving import ABACUS, DATA, PATIENCE_S, at_once, serving, wait_until

LLAMA = DATA / "checkpoints" / "llama-bf16"
PROMPT = "Anna has 12 pens and buys 7."
STREAM = {"model": "m", "prompt": "Tom has 3 apples. " * 20, "max_tokens": 400, "ignore_eos": True, "stream": True}


@contextlib.contextmanager
def survivor(*flags, model=ABACUS):
    with serving(model, "--max-model-len", 1024, *flags) as server:
        survival = Survival(server)
        yield survival
        survival.check()


def reset(client):
    """Closes with RST instead of FIN."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def leave(server, body, seeds, most_bytes):
    """Disconnects after some bytes of the answer, or before any."""
    client = raw_http.connect(server)
    client.sendall(raw_http.post("/v1/completions", body))
    want, got = seeds.randrange(most_bytes), 0
    while got < want:
        got += len(client.recv(min(4096, want - got)))
    if seeds.random() < 0.5:
        reset(client)
    else:
        client.close()


def test_l02_leaving_while_queued_and_in_the_prompt():
    with survivor("--max-num-seqs", 4, "--max-num-batched-tokens", 64) as survival:
        body = {**STREAM, "prompt": "Tom has 3 apples. " * 60}
        want = survival.ask(PROMPT)
        for part in range(10):
            jobs = [lambda i=i, part=part: leave(survival.server, body, random.Random(50 * part + i), 1) for i in range(50)]
            assert at_once([*jobs, lambda: survival.ask(PROMPT)])[-1] == want


def test_l03_a_storm_of_resets():
    with survivor("--max-num-seqs", 32) as survival:
        stop = threading.Event()

        def storm(number):
            seeds, count = random.Random(number), 0
            while not stop.is_set():
                leave(survival.server, STREAM, seeds, 3000)
                count += 1
            return count

        def steady():
            try:
                want = survival.ask(PROMPT)
                end = time.monotonic() + 15
                while time.monotonic() < end:
                    assert survival.ask(PROMPT) == want
            finally:
                stop.set()

        counts = at_once([lambda i=i: storm(i) for i in range(16)] + [steady])[:-1]
        assert sum(counts) > 100, counts


def test_l04_more_than_it_can_do():
    """Sends ten times as many requests as the server accepts: each gets the correct answer or an immediate 503, and none hangs."""
    with survivor("--max-num-queued-reqs", 16, "--max-num-seqs", 8) as survival:
        body = {"model": "m", "prompt": PROMPT, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        want = survival.server.complete(PROMPT, max_tokens=60, ignore_eos=True)["text"]
        refusals = []

        def ask():
            begin = time.monotonic()
            status, answer = survival.server.post("/v1/completions", body)
            if status == 200:
                assert answer["choices"][0]["text"] == want
            else:
                assert status == 503 and answer["error"]["message"], answer
                refusals.append(time.monotonic() - begin)
            return status

        statuses = []
        for _ in range(4):
            statuses += at_once([ask] * 160)
        assert statuses.count(200) >= 4 * 16 and statuses.count(503) > 100, statuses.count(503)
        assert sorted(refusals)[len(refusals) // 2] < 5
        assert survival.server.metric("vllm:admission_rejections_total") == len(refusals)


def test_l05_connections_that_say_nothing():
    with survivor("--timeout-keep-alive", 600, "--max-connections", 2500) as survival:
        idle = []
        try:
            for i in range(2000):
                idle.append(raw_http.connect(survival.server))
                if i % 2:
                    assert raw_http.get(idle[-1], "/health") == 200
            want = survival.ask(PROMPT)
            assert at_once([lambda: survival.ask(PROMPT)] * 40) == [want] * 40
        finally:
            for client in idle:
                client.close()


def test_l08_a_greedy_neighbour():
    """During requests with long prompts and several answers with logprobs, a short question still gets its answer soon."""
    with survivor("--max-num-seqs", 16, "--max-num-batched-tokens", 256) as survival:
        stop = threading.Event()

        def greedy(fields):
            while not stop.is_set():
                status, _ = survival.server.post("/v1/completions", {"model": "m", "max_tokens": 64, "ignore_eos": True, "prompt": PROMPT, **fields})
                assert status in (200, 503)

        def plain():
            try:
                want, waits = survival.ask(PROMPT), []
                for _ in range(20):
                    begin = time.monotonic()
                    assert survival.ask(PROMPT) == want
                    waits.append(time.monotonic() - begin)
                return waits
            finally:
                stop.set()

        waits = at_once([lambda: greedy({"n": 8, "logprobs": 20}), lambda: greedy({"prompt": "Tom " * 400, "prompt_logprobs": 20}), plain])[-1]
        assert max(waits) < 30, waits


def test_p02_requests_with_flipped_bytes():
    """Valid requests with a few bytes changed, removed or doubled: each gets an answer or a closed connection, and none hangs."""
    valid = [raw_http.post(path, body, "Connection: close") for path, body in (
        ("/v1/completions", {"model": "m", "prompt": "Tom", "max_tokens": 2, "logit_bias": {"5": 1}, "stop": ["a"]}),
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}),
        ("/tokenize", {"model": "m", "prompt": "a b c"}), ("/detokenize", {"model": "m", "tokens": [1, 2, 3]}))]
    valid += [raw_http.chunked("/tokenize", [b'{"model": "m", ', b'"prompt": "a"}'], "Connection: close"),
              b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"]

    def part(server, seeds, number):
        kinds = {}
        for _ in range(number):
            data = bytearray(seeds.choice(valid))
            for _ in range(seeds.randint(1, 4)):
                at = seeds.randrange(len(data))
                what = seeds.randrange(4)
                if what == 0:
                    data[at] ^= 1 << seeds.randrange(8)
                elif what == 1:
                    data[at] = seeds.choice(b"\r\n\0 \xff:,;[]{}\"9-")
                elif what == 2:
                    del data[at:at + seeds.randint(1, 8)]
                else:
                    data[at:at] = data[at:at + seeds.randint(1, 20)]
            answer = raw_http.send_and_read(server, bytes(data), half_close=True)
            status = raw_http.status_of(answer)
            kinds[status] = kinds.get(status, 0) + 1
            assert status < 500 or status in (501, 505), (bytes(data), answer[:300])
        return kinds

    with survivor() as survival:
        kinds = at_once([lambda i=i: part(survival.server, random.Random(i), 500) for i in range(6)])
        assert sum(k.get(200, 0) for k in kinds) > 50 and sum(k.get(400, 0) for k in kinds) > 500, kinds


def test_p09_heads_that_never_end():
    with survivor("--timeout-header", 2) as survival:
        slow = [raw_http.connect(survival.server) for _ in range(400)]
        begin = time.monotonic()
        for client in slow:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-")
        want = survival.ask(PROMPT)
        open_ones = list(slow)
        while open_ones and time.monotonic() < begin + 60:
            assert survival.ask(PROMPT) == want
            left = []
            for client in open_ones:
                client.setblocking(False)
                try:
                    client.send(b"a")
                    if client.recv(1000, socket.MSG_PEEK) != b"":
                        client.recv(1000)
                        left.append(client)
                except BlockingIOError:
                    left.append(client)
                except OSError:
                    pass
            open_ones = left
            time.sleep(0.2)
        assert not open_ones, "%d heads are still waited for" % len(open_ones)
        for client in slow:
            client.close()


def test_p10_bodies_that_never_end():
    with survivor("--timeout-body", 2) as survival:
        slow = [raw_http.connect(survival.server) for _ in range(100)]
        for client in slow:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        want = survival.ask(PROMPT)
        for client in slow:
            answer = raw_http.read_all(client)
            assert raw_http.status_of(answer) in (0, 408), answer[:200]
            client.close()
        assert survival.ask(PROMPT) == want


def test_p11_readers_that_do_not_read():
    """For clients that do not read, the server holds their answers back, and then drops them with the connection. Other clients are not
    slowed down, and memory is bounded."""
    with survivor("--timeout-write", 5, "--max-num-seqs", 128, "--max-num-queued-reqs", 300) as survival:
        body = {**STREAM, "prompt": "Tom", "max_tokens": 600, "logprobs": 5}
        slow = [raw_http.connect(survival.server, receive_buffer=2048) for _ in range(30)]
        for client in slow:
            client.sendall(raw_http.post("/v1/completions", body))
        want = survival.ask(PROMPT)
        for _ in range(5):
            assert survival.ask(PROMPT) == want
        # Requests of these clients can end while they are connected: bytes in the kernel's buffers count
        # as read.
        wait_until(lambda: not survival.server.metric("vllm:num_requests_running"), "answers that nobody reads still run")
        assert resident_bytes(survival.server.process.pid) < survival.resident + (30 * 320 << 10) + (16 << 20)
        for client in slow:
            client.close()


def test_r03_other_programs_take_the_processor():
    with survivor() as survival:
        burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * (os.cpu_count() or 1))]
        try:
            want = survival.ask(PROMPT)
            for _ in range(5):
                assert at_once([lambda: survival.ask(PROMPT)] * 8) == [want] * 8
                assert survival.server.get("/health")[0] == 200
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()


def test_r07_names_without_number():
    """Arbitrary names from clients fill neither memory nor metrics."""
    with survivor(model=LLAMA) as survival:
        server = survival.server
        series = len(server.get("/metrics")[1].splitlines())

        def part(first):
            for i in range(first, 12_000, 4):
                name = "%d-%d" % (i, i * 7919)
                body = {"model": "m" if i % 3 else "n" + name, "prompt": "a", "max_tokens": 1, "user": name, "cache_salt": name, "request_id": name}
                if i % 2:
                    path, sent = "/x/%s?y=%s" % (name, name), None
                else:
                    path, sent = "/v1/completions", body
                server.request("POST" if sent else ["GET", "PUT", "X" + name][i % 3], path, sent, headers={"X-Request-Id": name, "X-Session": name})

        at_once([lambda i=i: part(i) for i in range(4)])
        assert len(server.get("/metrics")[1].splitlines()) < series + 100


def test_r11_everything_as_large_as_it_may_be():
    with survivor("--max-num-seqs", 16, "--num-gpu-blocks-override", 200, "--max-logprobs", -1) as survival:
        seeds = random.Random(11)
        vocabulary = json.loads((ABACUS / "config.json").read_text())["vocab_size"]

        def ask(number):
            prompt = [seeds.randrange(3, vocabulary) for _ in range(1000)]
            fields = [{"logprobs": vocabulary}, {"prompt_logprobs": -1}, {"n": 16, "temperature": 1}, {"echo": True, "logprobs": 20},
                      {"logit_bias": {str(i): 1 for i in range(300)}, "bad_words": ["a b"] * 100, "stop": ["q" * 1000] * 4}]
            body = {"model": "m", "prompt": prompt, "max_tokens": 24, "ignore_eos": True, **fields[number % len(fields)]}
            status, _, text = survival.server.request("POST", "/v1/completions", body)
            assert status in (200, 503), text[:500]
            return status

        statuses = at_once([lambda i=i: ask(i) for i in range(10)])
        assert statuses.count(200) >= 8


def test_f07_stopped_and_continued():
    """A process that was stopped for a while continues with the same answer."""
    with survivor() as survival:
        server = survival.server
        body = {"model": "m", "prompt": "Tom has 3 apples.", "max_tokens": 300, "temperature": 0, "ignore_eos": True}
        want = server.post("/v1/completions", body)[1]["choices"]
        with raw_http.connect(server) as client:
            client.sendall(raw_http.post("/v1/completions", body, "Connection: close"))
            wait_until(lambda: server.metric("vllm:num_requests_running"), "it does not run")
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(2)
            server.process.send_signal(signal.SIGCONT)
            answer = raw_http.read_all(client)
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"] == want


@pytest.mark.parametrize("pieces", [1, 7])
def test_f05_streams_end_whole_in_a_drain(pieces):
    """SIGTERM under load: running answers are finished, exit code 0."""
    with serving(ABACUS, "--max-model-len", 1024, "--shutdown-timeout", PATIENCE_S, "--stream-interval", pieces) as server:
        body = {**STREAM, "max_tokens": 300, "stream_options": {"include_usage": True}}
        clients = [raw_http.connect(server) for _ in range(20)]
        for client in clients:
            client.sendall(raw_http.post("/v1/completions", body))
        wait_until(lambda: server.metric("vllm:num_requests_running") == 20, "not all run")
        server.process.terminate()
        for client in clients:
            answer = raw_http.read_all(client)
            assert b'"completion_tokens":300' in answer and b"data: [DONE]" in answer, answer[-300:]
            client.close()
        assert server.process.wait(PATIENCE_S) == 0
