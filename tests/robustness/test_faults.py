"""System calls that fail: memory, files, threads, sockets, clocks. Fixed numbers determine which calls fail, so that a run
can be repeated."""
import contextlib
import errno
import os
import random
import signal
import sqlite3
import subprocess
import time

import pytest
import raw_http
from faults import Switch
from ranks import MPI, answers
from survival import Survival

from serving import (
    ABACUS,
    PATIENCE_S,
    at_once,
    command,
    events,
    run,
    serving,
)

# Valid exit codes: see `sluice help exit-codes`. A signal is negative.
EXIT_CODES = range(0, 8)
COMPLETE = ("complete", ABACUS, "-q", "Tom has 3", "--max-tokens", 2, "--temperature", 0, "--num-gpu-blocks-override", 64,
            "--max-model-len", 256)


def outcome(environment):
    try:
        result = run(*COMPLETE, env=environment, timeout=60)
    except subprocess.TimeoutExpired as hung:
        return "hung", hung.stderr
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("call, error", [("open", errno.EIO), ("open", errno.EMFILE), ("read", errno.EIO), ("read", errno.EINTR),
                                         ("mmap", errno.ENOMEM), ("fstat", errno.EIO)])
def test_f02_each_call_at_start_fails_once(fault_shim, tmp_path, call, error):
    """The program ends with an error and a valid exit code, or works without the call; its answer never changes."""
    want = outcome({})
    assert want[0] == 0
    switch = Switch(tmp_path / "switch", True)
    environment = {**fault_shim, "FAULT_CALL": call, "FAULT_ERRNO": str(error), "FAULT_SWITCH": str(switch.path)}
    assert outcome({**environment, "FAULT_NTH": str(2**62)})[0] == 0
    calls = switch.count()
    assert calls > 3, "the shim is not in front of the C library"
    refusals = 0
    for nth in range(1, min(calls, 25) + 1):
        code, output = outcome({**environment, "FAULT_NTH": str(nth)})
        # Known exception: if the engine's thread cannot allocate its scratch memory at start, a CHECK ends the process
        # with a message.
        by_name = call == "mmap" and code == -signal.SIGABRT and "cannot allocate" in output and "CHECK" in output
        assert code in EXIT_CODES or by_name, (call, nth, code, output[-1000:])
        if by_name:
            continue
        if code:
            refusals += 1
            assert "error: " in output, (call, nth, output)
        else:
            assert output.splitlines()[0] == want[1].splitlines()[0], (call, nth)
    assert refusals or error == errno.EINTR or call == "read"


def test_f01_allocations_fail_while_a_model_is_read(fault_shim, tmp_path):
    """Injects a failure into each of a hundred allocations after the first JSON file is read, chosen by a seed. Each failure ends the
    program with an error, or has no effect."""
    switch = Switch(tmp_path / "switch", True)
    environment = {**fault_shim, "FAULT_CALL": "new", "FAULT_SWITCH": str(switch.path)}

    def ends(nth, *words):
        result = run(*words, env={**environment, "FAULT_NTH": str(nth)}, timeout=60)
        return result.returncode, result.stderr

    # Libraries allocate at their first use, partly in code that must not throw; count only the allocations after this.
    (tmp_path / "config.json").write_text("{}")
    assert ends(2**62, "inspect", tmp_path)[0] in EXIT_CODES
    first = switch.count()
    assert ends(2**62, "inspect", ABACUS)[0] == 0
    calls = switch.count()
    assert 0 < first < calls, "the shim is not in front of the C library"
    codes = set()
    for nth in sorted(random.Random(1).sample(range(first, calls), 100)):
        code, said = ends(nth, "inspect", ABACUS)
        assert code in EXIT_CODES and (code == 0 or "error: " in said), (nth, code, said[-1000:])
        codes.add(code)
    assert 4 in codes, codes


def test_r05_threads_are_refused(fault_shim):
    """Whichever thread the system refuses at start, the program reports it and ends."""
    for nth in range(1, 8):
        environment = {**fault_shim, "FAULT_CALL": "pthread_create", "FAULT_NTH": str(nth), "FAULT_ERRNO": str(errno.EAGAIN)}
        result = subprocess.run(["timeout", "10", *command("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, "--threads", 2)],
                                capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"} | environment, timeout=PATIENCE_S)
        if "ready in" not in result.stderr:
            assert result.returncode in EXIT_CODES and "error: " in result.stderr, (nth, result.returncode, result.stderr[-1000:])


@pytest.mark.parametrize("call, fault", [("send", {"FAULT_SHORT": "1"}), ("recv", {"FAULT_SHORT": "1"}),
                                         ("epoll_wait", {"FAULT_ERRNO": str(errno.EINTR)}), ("accept", {"FAULT_ERRNO": str(errno.EMFILE)})])
def test_f02_sockets_that_stutter(fault_shim, tmp_path, call, fault):
    """One call in five transfers fewer bytes or must be repeated; nothing is lost, and no answer changes."""
    switch = Switch(tmp_path / "switch", False)
    with serving(ABACUS, "--max-model-len", 1024, env={**fault_shim, "FAULT_CALL": call, "FAULT_SEED": "7", "FAULT_PER_MILLE": "200",
                                                       "FAULT_SWITCH": str(switch.path), **fault}) as server:
        survival = Survival(server)
        body = {"model": "m", "prompt": "Anna has 12 pens.", "max_tokens": 64, "temperature": 0, "ignore_eos": True, "stream": True}
        want = [chunk["choices"][0]["text"] for chunk in events(server.request("POST", "/v1/completions", body)[2])[:-1]]
        switch.set(True)

        def ask():
            status, _, text = server.request("POST", "/v1/completions", body)
            got = events(text)
            assert status == 200 and got[-1] == "[DONE]"
            assert "".join(chunk["choices"][0]["text"] for chunk in got[:-1]) == "".join(want)

        at_once([ask] * 20)
        assert switch.count() > 20, "the shim is not in front of the C library"
        switch.set(False)
        survival.check()


@pytest.mark.parametrize("error", [errno.ECONNRESET, errno.EPIPE])
@pytest.mark.parametrize("call", ["send", "recv"])
def test_f02_sockets_that_break(fault_shim, tmp_path, call, error):
    """One call in five breaks its connection; the server stays up and leaks nothing."""
    switch = Switch(tmp_path / "switch", False)
    with serving(ABACUS, "--max-model-len", 1024, env={**fault_shim, "FAULT_CALL": call, "FAULT_SEED": "3", "FAULT_PER_MILLE": "200",
                                                       "FAULT_ERRNO": str(error), "FAULT_SWITCH": str(switch.path)}) as server:
        survival = Survival(server)
        switch.set(True)
        broken = 0

        def ask():
            nonlocal broken
            try:
                with raw_http.connect(server) as client:
                    client.sendall(raw_http.post("/v1/completions", {"model": "m", "prompt": "Tom", "max_tokens": 40, "ignore_eos": True,
                                                                     "stream": True}, "Connection: close"))
                    broken += not raw_http.read_all(client).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            except OSError:
                broken += 1

        for _ in range(10):
            at_once([ask] * 10)
        switch.set(False)
        assert broken, "no call failed"
        survival.check()


def test_f08_the_wall_clock_jumps(fault_shim, tmp_path):
    """The clock jumps a day forward or back at every reading: no deadline fires, nothing hangs, and times in the metrics stay plausible."""
    switch = Switch(tmp_path / "switch", False)
    with serving(ABACUS, "--max-model-len", 1024, env={**fault_shim, "FAULT_CLOCK": "86400", "FAULT_SWITCH": str(switch.path)}) as server:
        survival = Survival(server)
        switch.set(True)
        start = time.monotonic()
        created = {server.post("/v1/completions", {"model": "m", "prompt": "Tom", "max_tokens": 8})[1]["created"] for _ in range(20)}
        assert max(created) - min(created) > 80_000, "the shim is not in front of the C library"
        with raw_http.connect(server) as client:  # kept alive while the clock jumps
            for _ in range(20):
                assert raw_http.get(client, "/health") == 200
        assert 0 < server.metric("vllm:e2e_request_latency_seconds_sum") < 10 * (time.monotonic() - start) + 600
        survival.check()
        assert server.stop() == 0


# A library for LD_PRELOAD that makes each read of a database page take 20 ms.
SLOW_PAGES = """
#include <dlfcn.h>
#include <unistd.h>

extern "C" ssize_t pread64(int fd, void* data, size_t size, off64_t at) {
  static const auto next = reinterpret_cast<ssize_t (*)(int, void*, size_t, off64_t)>(dlsym(RTLD_NEXT, "pread64"));
  if (size == 4096) usleep(20000);
  return next(fd, data, size, at);
}
"""


def test_a10_a_signal_ends_the_start_while_stored_responses_are_read(tmp_path):
    source, library, log, folder = (tmp_path / name for name in ("slow.cc", "slow.so", "log", "kept"))
    source.write_text(SLOW_PAGES)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    words = command("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, "--max-model-len", 1024, "--response-store", folder)
    with serving(ABACUS, "--max-model-len", 1024, "--response-store", folder) as server:
        assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(folder / "responses.sqlite")) as file, file:
        for i in range(100):  # 2,500 pages, which take nearly a minute
            file.execute("INSERT INTO responses(id, owner, is_over, messages, input_items, body, item_ids, checksum) "
                         "VALUES (?, x'', 1, '[]', '[]', ?, '[]', 0)", (str(i), " " * 100_000))
    with open(log, "w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "LD_PRELOAD": str(library)})
    try:
        time.sleep(3)
        assert process.poll() is None, log.read_text()
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 0
        assert time.monotonic() - start < 10, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_f08_m01_ranks_do_not_mind_a_clock_that_jumps(fault_shim, tmp_path):
    """Ranks use a monotonic clock to detect silent peers, and to wait for each other in steps."""
    switch = Switch(tmp_path / "switch", False)
    env = {**fault_shim, "FAULT_CLOCK": "86400", "FAULT_SWITCH": str(switch.path)}
    with serving(ABACUS, "--max-model-len", 1024, "-tp", 2, *MPI, env=env) as server:
        expected = answers(server)
        switch.set(True)
        end = time.monotonic() + 8  # longer than the silence after which a rank counts as lost
        created = set()
        while time.monotonic() < end:
            assert answers(server) == expected
            created.add(server.post("/v1/completions", {"model": "m", "prompt": "Tom", "max_tokens": 1})[1]["created"])
        assert max(created) - min(created) > 80_000, "the shim is not in front of the C library"
        assert server.stop() == 0
