"""Starts servers whose model is computed by several processes, and finds those processes."""
import contextlib
import ipaddress
import json
import pathlib
import signal
import threading
import time

from serving import wait_until

# Maximum time from the loss of a rank until the last open request gets its error. The docs say 5 s; a machine that is
# busy with other tests needs more.
TOLD_S = 30
MPI = ("--distributed-executor-backend", "mpi")
PROMPTS = ["Anna has 12 pens and buys 7.", "Tom has 3 apples. ", "A box holds 24 eggs, 5 break."]


def children(pid):
    found = []
    for task in pathlib.Path("/proc/%d/task" % pid).glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def family(pid):
    """All descendants of a process."""
    return [process for child in children(pid) for process in (child, *family(child))]


def name_of(pid):
    try:
        return pathlib.Path("/proc/%d/comm" % pid).read_text().strip()
    except OSError:
        return ""


def ranks_of(server):
    """The processes of the ranks, in rank order."""
    def rank(pid):
        environment = pathlib.Path("/proc/%d/environ" % pid).read_bytes().split(b"\0")
        return int(next(line for line in environment if line.startswith(b"OMPI_COMM_WORLD_RANK=")).split(b"=")[1])

    return sorted((pid for pid in family(server.process.pid) if name_of(pid) == "sluice"), key=rank)


def listening(pids):
    """{(address, port, name of the program)} of all listening sockets of these processes, in each one's network."""
    found = set()
    for pid in pids:
        inodes = set()
        with contextlib.suppress(OSError):
            for file in pathlib.Path("/proc/%d/fd" % pid).iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(str(file.readlink()))
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path("/proc/%d/net/%s" % (pid, table)).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and "socket:[%s]" % words[9] in inodes:
                    address, port = words[1].split(":")
                    found.add((address_of(address), int(port, 16), name_of(pid)))
    return found


def address_of(digits):
    """Parses an address from /proc/net/tcp or tcp6, which write it as words in the machine's byte order."""
    raw = b"".join(bytes.fromhex(digits[i:i + 8])[::-1] for i in range(0, len(digits), 8))
    return str(ipaddress.ip_address(raw))


def shown_of(pid):
    """Data of a process that /proc shows: its command line and its environment."""
    return b"".join(pathlib.Path("/proc/%d/%s" % (pid, file)).read_bytes() for file in ("cmdline", "environ"))


def alive(pids):
    """The processes that still run; zombies do not count."""
    def state(pid):
        try:
            return pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "Z"

    return [pid for pid in pids if state(pid) not in "ZX"]


def none_left(pids):
    wait_until(lambda: not alive(pids), lambda: "processes are left: %s" % [(pid, name_of(pid)) for pid in alive(pids)], 30)
    assert not [path.name for path in pathlib.Path("/dev/shm").glob("*") if any(str(pid) in path.name for pid in pids)]


def answers(server, prompts=None):
    """Greedy and sampled answers with their logprobs, all requested at once: a single changed bit shows."""
    found = {}

    def ask(key, prompt, fields):
        status, answer = server.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 12, "logprobs": 3, "ignore_eos": True,
                                                         "return_tokens_as_token_ids": True, **fields})
        assert status == 200, answer
        found[key] = json.dumps([answer["choices"][0]["text"], answer["choices"][0]["logprobs"]], sort_keys=True)

    threads = [threading.Thread(target=ask, args=((i, j), prompt, fields)) for i, prompt in enumerate(prompts or PROMPTS)
               for j, fields in enumerate(({"temperature": 0}, {"temperature": 0.9, "seed": 5}))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    return found


class Stream:
    """An open answer of many tokens, read as it arrives. Needs a server with a context of 4096."""

    def __init__(self, server, tokens=3900):
        self.text, self.ended_after_s = b"", None
        self.thread = threading.Thread(target=self.read, args=(server, tokens))
        self.thread.start()
        wait_until(lambda: b"data:" in self.text, lambda: "no token came: %s" % self.text, 60)

    def read(self, server, tokens):
        import http.client
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": PROMPTS[0], "max_tokens": tokens, "stream": True,
                                                                  "temperature": 0, "ignore_eos": True}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        with contextlib.suppress(OSError, http.client.HTTPException):
            for line in reply:
                self.text += line
        connection.close()

    def error(self):
        """Waits for the end; returns the error of the last event before [DONE]."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        events = [line for line in self.text.decode().splitlines() if line.startswith("data: {")]
        return json.loads(events[-1][6:]).get("error")


def expect_told(server, stream, since, *words):
    """Checks that the stream soon ends with an error. Also, /health must return 503 with the reason, or the server must have ended with a
    nonzero exit code."""
    reasons = []

    def health():
        try:
            status, text = server.get("/health", timeout=2)
        except OSError:
            return "gone"
        if status == 503:
            reasons.append(json.loads(text).get("reason", ""))
        return status == 503

    wait_until(health, "/health stays 200", TOLD_S + 1)
    assert time.monotonic() - since < TOLD_S
    if stream:
        error = stream.error()
        assert time.monotonic() - since < TOLD_S
        assert error, stream.text[-500:]
        for word in words:
            assert word in json.dumps(error), error
    for word in words:
        assert not reasons or word in reasons[0], reasons
    assert server.process.wait(60) != 0
    return reasons


def stop_and_tell(pid, number=signal.SIGKILL):
    import os
    since = time.monotonic()
    os.kill(pid, number)
    return since
