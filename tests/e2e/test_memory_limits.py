"""A server with little memory rejects large requests and continues to work."""
import http.client
import json
import re
import resource
import socket
import threading

import pytest

from serving import ABACUS, serving, wait_until

MIB = 1 << 20


def limit_to(mebibytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes * MIB, mebibytes * MIB))


def status_of(server, path, text):
    """The status of the answer; None if the server closes the connection before it has read the whole request."""
    try:
        return server.request("POST", path, text)[0]
    except (OSError, http.client.HTTPException):
        return None


def resident(server):
    """Resident memory in bytes: (now, peak)."""
    status = open("/proc/%d/status" % server.process.pid).read()
    return tuple(int(re.search(name + r":\s+(\d+) kB", status)[1]) << 10 for name in ("VmRSS", "VmHWM"))


LARGE = {
    "tokenize": ("/tokenize", json.dumps({"prompt": "x y " * (5 * MIB // 4)})),
    "completion": ("/v1/completions", json.dumps({"prompt": "x y " * (20 * MIB // 4)})),
    "values": ("/v1/completions", '{"prompt":"a","x":[' + ",".join(["1"] * 1000000) + "]}"),
}


@pytest.mark.parametrize("mebibytes", [250, 400])
def test_r02_a_limit_of_address_space_holds_for_requests(mebibytes):
    with serving(ABACUS, "--max-model-len", 1024, "--num-gpu-blocks-override", 256, preexec_fn=limit_to(mebibytes)) as server:
        plan = re.search(r"free +([\d.]+) (\w+)  of ([\d.]+) MiB that this process may use \(limited by its RLIMIT_AS\)", server.log())
        assert plan and float(plan[3]) == mebibytes, server.log()
        for _ in range(2):
            for path, text in LARGE.values():
                assert status_of(server, path, text) in (200, 400, 413, 503, None)
                assert server.process.poll() is None, server.log()
        server.complete("Tom has", max_tokens=2)


def test_r02_unfinished_bodies_are_refused_before_they_fill_the_process():
    with serving(ABACUS, "--max-model-len", 1024, preexec_fn=limit_to(700)) as server:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        answers = []

        def send():
            with socket.create_connection(("127.0.0.1", server.port), 60) as s:
                try:
                    s.sendall(head % (30 * MIB + 1) + b" " * (30 * MIB))
                    s.settimeout(1)
                    answers.append(s.recv(100))
                except OSError:
                    pass  # The request was rejected, or the server waits for its last byte.

        clients = [threading.Thread(target=send) for _ in range(14)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert server.process.poll() is None, server.log()
        assert all(re.match(rb"HTTP/1.1 (413|503) ", answer) for answer in answers if answer), answers
        server.complete("Tom has", max_tokens=2)
        wait_until(lambda: server.metric("sluice:request_memory_used_bytes") < MIB, "the bodies' memory is held")


def test_a_large_body_takes_three_times_its_size_and_gives_it_back():
    with serving(ABACUS, "--max-model-len", 1024, "--num-gpu-blocks-override", 256) as server:
        server.complete("Tom has", max_tokens=2)
        before = resident(server)[0]
        text = json.dumps({"prompt": "x y " * (5 * MIB)})
        assert status_of(server, "/v1/completions", text) == 400
        assert resident(server)[1] - before < 3 * len(text)
        wait_until(lambda: resident(server)[0] - before < len(text) // 4, "the body's memory is kept", 60)


def test_the_plan_and_the_metrics_tell_of_the_option():
    with serving(ABACUS, "--max-model-len", 1024, "--request-memory-bytes", "32MiB") as server:
        assert re.search(r"requests +32.0 MiB  bodies, prompts and answers", server.log()), server.log()
        assert server.metric("sluice:request_memory_bytes") == 32 * MIB
        status, answer = server.post("/v1/completions", LARGE["values"][1])
        assert status == 413 and "--request-memory-bytes" in answer["error"]["message"], answer
        assert server.metric("sluice:request_memory_refusals_total") == 1
