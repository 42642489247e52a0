"""Starts a server for the time of a test, and sends it plain HTTP requests."""
import contextlib
import functools
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SLUICE_BIN") or ROOT / "build" / "release" / "bin").resolve()
DATA = ROOT / "tests" / "data"
ABACUS = ROOT / "models" / "abacus"
# Longer than any operation takes on a slow and busy machine, except one that hangs.
PATIENCE_S = 300
READY = re.compile(r"serving .* at https?://\S*:(\d+), ready in")
# Removes variables of the caller's shell that affect the program, its dialects or its clients' libraries. Keeps the
# variables that select what is tested: the program, the kernels, the device and the fake HIP runtime.
CHOOSING = ("SLUICE_BIN", "SLUICE_CPU_ISA", "SLUICE_TESTED_DEVICE", "SLUICE_HIP_RUNTIME", "SLUICE_RCCL", "SLUICE_FAKE_HIP")
FOREIGN = re.compile(r"(SLUICE|VLLM|TRTLLM|TLLM|HF|HUGGING_FACE|TRANSFORMERS|OPENAI|HIP|CUDA|NCCL)_.*|.*_proxy", re.I)
# The device that tests of devices use.
TESTED_DEVICE = os.environ.get("SLUICE_TESTED_DEVICE", "emulated")
for variable in [name for name in os.environ if FOREIGN.fullmatch(name) and name not in CHOOSING]:
    del os.environ[variable]
# Tests use only hubs that they start themselves.
os.environ["HF_HUB_OFFLINE"] = "1"


def free_port(count=1):
    """The first of `count` consecutive ports that were free a moment ago: another process may still take it before it is bound."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            first = stack.enter_context(socket.socket())
            first.bind(("", 0))
            port = first.getsockname()[1]
            for i in range(1, count):
                stack.enter_context(socket.socket()).bind(("", port + i))
            return port


@functools.cache
def deaf_socket():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


def deaf_port():
    """A port that is bound while the tests run, but on which no process listens."""
    return deaf_socket().getsockname()[1]


def wait_until(condition, what, seconds=PATIENCE_S):
    """Waits for `condition`; returns its first true value. `what`: the error message, or a callable that returns it."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "after %d s: %s" % (seconds, what() if callable(what) else what)
        time.sleep(0.02)


class Server:
    def __init__(self, process, port, log):
        self.process, self.port, self.log_path = process, port, log
        self.url = "http://127.0.0.1:%d" % port

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE_S, only_headers=None):
        """(status, headers, bytes). A body that is not bytes or text is sent as JSON; `only_headers` omits its Content-Type."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            sent = {"Content-Type": "application/json", **(headers or {})} if only_headers is None else only_headers
            connection.request(method, path, data, sent)
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def get(self, path, **kw):
        status, _, text = self.request("GET", path, **kw)
        return status, text

    def post(self, path, body, **kw):
        """(status, parsed answer)."""
        status, _, text = self.request("POST", path, body, **kw)
        return status, json.loads(text)

    def complete(self, prompt, **fields):
        """Sends a completion that must succeed; returns its only choice."""
        body = {"model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 16, **fields}
        status, answer = self.post("/v1/completions", body)
        assert status == 200, answer
        return answer["choices"][0]

    def metric(self, name):
        """The sum of a metric's samples; None if it has none."""
        values = [float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics")[1].decode().splitlines()
                  if line.startswith((name + "{", name + " "))]
        return sum(values) if values else None

    def stop(self, signal_number=signal.SIGTERM, timeout=PATIENCE_S):
        self.process.send_signal(signal_number)
        return self.process.wait(timeout)


def command(*words, program="sluice"):
    return [str(BIN / program), *map(str, words)]


def run(*words, program="sluice", timeout=PATIENCE_S, env=None, **kw):
    """Runs the program until it ends."""
    return subprocess.run(command(*words, program=program), capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(env or {})}, **kw)


def wait_until_ready(process, log):
    """Waits until a server's log reports that it is ready; returns the port."""
    def port():
        found = READY.search(pathlib.Path(log).read_text(errors="replace"))
        assert found or process.poll() is None, "the server ended at start: " + pathlib.Path(log).read_text(errors="replace")
        return found and int(found[1])

    return wait_until(port, lambda: "not ready: " + pathlib.Path(log).read_text(errors="replace"))


def end(process):
    """Ends a process; kills it if it does not react."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def serving(model, *flags, program="sluice", name="m", env=None, preexec_fn=None, launcher=()):
    """Starts `serve model flags` under the served name `name` on a port that the system chooses; yields a Server when
    /health is 200, and ends it afterwards. `launcher`: words before the command, which becomes that process."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        words = command("serve", model, "--host", "127.0.0.1", "--port", 0, "--served-model-name", name, *flags, program=program)
        process = subprocess.Popen([*launcher, *words],
                                   stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})},
                                   preexec_fn=preexec_fn)
        try:
            server = Server(process, wait_until_ready(process, log.name), log.name)
            status, text = server.get("/health")
            assert status == 200, text
            yield server
        finally:
            end(process)


@contextlib.contextmanager
def serving_unheard(model, *flags, output, env=None, cwd=None):
    """A server named "m" whose log is not read: `output(words, **kw)` starts the process and sets its output."""
    def start():
        port = free_port()
        words = command("serve", model, "--host", "127.0.0.1", "--port", port, "--served-model-name", "m", *flags)
        return Server(output(words, stdin=subprocess.DEVNULL, env=env, cwd=cwd), port, os.devnull)

    def ready():
        nonlocal server
        if server.process.poll() == 6:  # another process has taken the port meanwhile
            server = start()
        assert server.process.poll() is None
        with contextlib.suppress(OSError):
            return server.get("/health")[0] == 200

    server = start()
    try:
        wait_until(ready, "no answer")
        yield server
    finally:
        end(server.process)


def limit_files(soft, hard=None):
    """For preexec_fn: limits the number of files that the process may open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard or resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def at_once(jobs):
    """Runs callables in threads; returns their results in order. Raises the first exception."""
    results = [None] * len(jobs)

    def work(i):
        try:
            results[i] = (jobs[i](), None)
        except BaseException as problem:  # raised in the caller's thread
            results[i] = (None, problem)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, problem in results:
        if problem is not None:
            raise problem
    return [value for value, _ in results]


def events(raw):
    """The data of each server-sent event, parsed as JSON except [DONE]."""
    data = [part[len("data:"):].strip() for part in raw.decode().split("\n\n") if part.startswith("data:")]
    return [d if d == "[DONE]" else json.loads(d) for d in data]
