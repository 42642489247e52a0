"""A server on this machine that a benchmark starts, queries and stops."""
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import typing

START_S = 120


class NotStarted(SystemExit):
    """The server ended, or was not ready in time; the message is its log."""


class Server(typing.NamedTuple):
    port: int
    pid: int
    seconds: float  # until /health returned 200


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def request(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, text


@contextlib.contextmanager
def server(program, *words, launcher=(), env=None):
    """Starts a Server that serves its model as m."""
    port = free_port()
    with tempfile.TemporaryFile() as log:
        begin = time.monotonic()
        process = subprocess.Popen([*launcher, program, "serve", *map(str, words), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        try:
            while True:
                with contextlib.suppress(OSError):
                    if request(port, "GET", "/health")[0] == 200:
                        break
                if process.poll() is not None or time.monotonic() - begin > START_S:
                    log.seek(0)
                    raise NotStarted("it does not start:\n" + log.read().decode())
                time.sleep(0.005)
            yield Server(port, process.pid, time.monotonic() - begin)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
