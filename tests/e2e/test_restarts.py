"""Two servers behind nginx and HAProxy, configured as in deploy/, restarted one after the other while clients stream."""
import collections
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from serving import (
    ABACUS,
    ROOT,
    Server,
    command,
    end,
    free_port,
    serving,
    wait_until,
    wait_until_ready,
)

CLIENTS, RESTARTS, DELAY_S = 16, 4, 2


def program(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    return found or pytest.skip("no %s here" % name)


def nginx(folder, port, ports):
    text = (ROOT / "deploy" / "nginx" / "sluice.conf").read_text().replace("listen 8000;", "listen 127.0.0.1:%d;" % port)
    for given, own in zip(("127.0.0.1:8001", "127.0.0.1:8002"), ports, strict=True):
        assert given in text
        text = text.replace(given, "127.0.0.1:%d" % own)
    paths = "".join("%s_temp_path %s/%s;\n" % (kind, folder, kind) for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text("%s\npid %s/pid; error_log %s/error; daemon off; worker_processes 1;\nevents { worker_connections 1024; }\n"
                                       "http {\naccess_log off;\n%s%s}\n" % (user, folder, folder, paths, text))
    return [program("nginx"), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error")]


def haproxy(folder, port, ports):
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text().replace("bind :8000", "bind 127.0.0.1:%d" % port)
    for given, own in zip(("127.0.0.1:8001", "127.0.0.1:8002"), ports, strict=True):
        assert given in text
        text = text.replace(given, "127.0.0.1:%d" % own)
    (folder / "haproxy.cfg").write_text(text.replace("inter 1s", "inter 400ms"))
    return [program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]


class Node:
    def __init__(self, folder, name):
        self.port, self.log_path, self.process, self.starts = free_port(), folder / name, None, 0

    def start(self):
        self.starts += 1
        log = "%s-%d" % (self.log_path, self.starts)
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                command("serve", ABACUS, "--served-model-name", "m", "--host", "127.0.0.1", "--port", self.port, "--max-model-len", 512,
                        "--num-gpu-blocks-override", 2048, "--drain-delay", DELAY_S, "--listen-when-ready"),
                stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        wait_until_ready(self.process, log)

    def restart(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0
        self.start()


def ask(number, port, stop, seen, words):
    """Sends streamed chats to the proxy, one after another, on a kept-alive connection."""
    connection, k = None, 0
    while not stop.is_set():
        k += 1
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Anna has %d nuts and %d pens." % (number, k)}],
                           "max_tokens": 16 + (7 * number + 11 * k) % 28, "ignore_eos": True, "stream": True})
        status, text = None, b""
        try:
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            status, text = reply.status, reply.read()
            if reply.will_close:
                connection.close()
                connection = None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            connection, text = None, repr(error).encode()
        whole = status == 200 and b"[DONE]" in text
        seen["whole" if whole else "lost"] += 1
        if not whole:
            words.append((status, text[-200:]))


@pytest.mark.parametrize("make", [nginx, pytest.param(haproxy, marks=pytest.mark.slow)])
def test_rolling_restarts_lose_nothing(tmp_path, make):
    nodes, port = [Node(tmp_path, "one"), Node(tmp_path, "two")], free_port()
    words_of_proxy = make(tmp_path, port, [node.port for node in nodes])
    stop, seen, words, proxy = threading.Event(), collections.Counter(), [], None
    threads = [threading.Thread(target=ask, args=(i, port, stop, seen, words)) for i in range(CLIENTS)]
    try:
        for node in nodes:
            node.start()
        with open(tmp_path / "proxy", "w") as log:
            proxy = subprocess.Popen(words_of_proxy, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        def answers():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                return True
            assert proxy.poll() is None, (tmp_path / "proxy").read_text()
            return False

        wait_until(answers, "the proxy does not listen")
        time.sleep(1)  # wait for HAProxy's health checks
        for thread in threads:
            thread.start()
        wait_until(lambda: seen["whole"] >= CLIENTS, lambda: str(words[:3]))
        for k in range(RESTARTS):
            nodes[k % 2].restart()
            time.sleep(3.5)  # 3 s after a refused connection nginx tries the server again
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(120)
        for process in [proxy, *[node.process for node in nodes]]:
            if process is not None:
                end(process)
    assert seen["whole"] > 10 * CLIENTS
    assert not seen["lost"], words[:5]


def test_a_second_signal_skips_the_delay():
    with serving(ABACUS, "--max-model-len", 512, "--drain-delay", 600) as server:
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.request("GET", "/ready")[0] == 503, "still ready")
        assert server.request("GET", "/health")[0] == 200
        status, headers, _ = server.request("POST", "/v1/completions", {"model": "m", "prompt": "2 + 2", "max_tokens": 2})
        assert status == 200 and headers["connection"] == "close"
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 60
        assert re.search(r"drain delay: /ready returns 503", server.log())


def test_a_server_that_loads_refuses_connections(tmp_path):
    """With --listen-when-ready, for a proxy without health checks: the first accepted connection is served."""
    port, log = free_port(), tmp_path / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(command("serve", ABACUS, "--served-model-name", "m", "--host", "127.0.0.1", "--port", port, "--max-model-len", 512,
                                           "--listen-when-ready"), stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        server = Server(process, port, log)
        refused = 0

        def first_answer():
            nonlocal refused
            try:
                return server.request("GET", "/ready")[0]
            except ConnectionRefusedError:
                refused += 1
                return None

        assert wait_until(first_answer, lambda: server.log()) == 200
        assert refused > 0
    finally:
        end(process)
