"""Clients that disconnect mid-stream leave no work behind and do not disturb others."""
import json
import socket

from serving import ABACUS, PATIENCE_S, at_once, serving, wait_until

BODY = json.dumps({"model": "m", "prompt": "Tom has 3 apples. " * 20, "max_tokens": 2000, "ignore_eos": True, "stream": True})
HEAD = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
CLIENTS = 500
AT_ONCE = 50


def leave(server, after_bytes):
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as client:
        client.sendall((HEAD + BODY).encode())
        got = b""
        while len(got) < after_bytes:
            piece = client.recv(4096)
            assert piece, "the stream ended early: %r" % got[:300]
            got += piece


def test_l01_disconnects():
    with serving(ABACUS, "--max-model-len", 4096, "--max-num-seqs", 64) as server:
        ask = lambda: server.complete("Anna has 12 pens and buys 7.", max_tokens=48, ignore_eos=True, logprobs=1)
        want = ask()
        for _ in range(CLIENTS // AT_ONCE):
            neighbour = at_once([lambda i=i: leave(server, 300 + 40 * i) for i in range(AT_ONCE)] + [ask])[-1]
            assert neighbour == want
        wait_until(lambda: not server.metric("vllm:num_requests_running") and not server.metric("vllm:kv_cache_usage_perc"),
                   "work or blocks are left")
        assert server.metric("vllm:num_requests_waiting") == 0
        assert server.metric("vllm:request_success_total") >= CLIENTS // AT_ONCE + 1
