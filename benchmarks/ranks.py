#!/usr/bin/env python3
"""Measures the cost of ranks on one machine: one rank and two compute the same work alternately, on the same cores, in one run.

    benchmarks/ranks.py speed [--rounds 5]      two ranks as threads, and as processes of `mpirun`, against one with the same threads
    benchmarks/ranks.py start                   how much longer four ranks take to start than one
    benchmarks/ranks.py machines                how soon two machines (network namespaces) serve; needs root
    benchmarks/ranks.py slow-cable              what a delay on the cable between them adds to a step; needs root

`speed` measures a prompt of 512 tokens (prefill) and 24 tokens after a short one (decode) on the shape of Llama 3.2 1B with random
weights; the result is the median of the rounds' ratios. Run it on an idle machine. The program is build/release/bin/sluice, or SLUICE_BIN.
"""
import argparse
import contextlib
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from local_server import START_S, request, server

ROOT = pathlib.Path(__file__).resolve().parents[1]
SLUICE = os.environ.get("SLUICE_BIN", str(ROOT / "build" / "release" / "bin" / "sluice"))
SHAPE = ROOT / "benchmarks" / "llama-3.2-1b-shape"
ABACUS = ROOT / "models" / "abacus"
TOKENIZER = ROOT / "tests" / "data" / "checkpoints" / "llama-bf16"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
EXACT = ("--tensor-parallel-mode", "exact")


def seconds_of(port, prompt_tokens, tokens, number):
    # No prompt begins like another.
    prompt = [(number * 101 + k * 7) % 500 for k in range(prompt_tokens)]
    begin = time.monotonic()
    status, text = request(port, "POST", "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
    assert status == 200, text
    return time.monotonic() - begin


def speed(options):
    common = (SHAPE, "--load-format", "dummy", "--tokenizer", TOKENIZER, "--max-model-len", 1024, "--max-num-seqs", 4, "--kv-cache-memory-bytes", "128M")
    kinds = {"one rank, 2 threads": ((*common, "--threads", 2), ()),
             "two ranks as threads": ((*common, "--threads", 2, "-tp", 2, *EXACT), ()),
             "mpirun -n 2": ((*common, "--threads", 1, "-tp", 2), ("mpirun", "--oversubscribe", "--bind-to", "none", "-q", "-n", "2"))}
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:
        ports = {kind: stack.enter_context(server(SLUICE, *words, launcher=launcher, env=AS_ROOT)).port for kind, (words, launcher) in kinds.items()}
        works = {"prefill": lambda port: seconds_of(port, 512, 1, next(numbers)),
                 # Includes the first token's step, which computes the prompt; it is short.
                 "decode": lambda port: seconds_of(port, 4, 24, next(numbers))}
        seconds = {(work, kind): [] for work in works for kind in kinds}
        for round_number in range(options.rounds + 1):
            for work, run in works.items():
                # Every other round in reverse order, so that other load on the machine affects all kinds alike.
                order = list(kinds) if round_number % 2 else list(reversed(kinds))
                for kind in order:
                    took = run(ports[kind])
                    if round_number > 0:
                        seconds[work, kind].append(took)
    first = next(iter(kinds))
    for work in works:
        for kind in kinds:
            ratios = [one / took for one, took in zip(seconds[work, first], seconds[work, kind])]
            print("%-8s %-22s median %7.1f ms   %.3f x one rank's speed (least %.3f, most %.3f)" % (
                work, kind, 1000 * statistics.median(seconds[work, kind]), statistics.median(ratios), min(ratios), max(ratios)))


def start(_):
    kinds = {"one rank": (("--threads", 2), ()), "4 ranks as threads": (("--threads", 4, "-tp", 4, *EXACT), ()),
             "4 ranks as processes": (("--threads", 1, "-tp", 4, "--distributed-executor-backend", "mpi"), ())}
    seconds = {kind: [] for kind in kinds}
    for _ in range(3):
        for kind, (words, launcher) in kinds.items():
            with server(SLUICE, ABACUS, *words, launcher=launcher) as started:
                seconds[kind].append(started.seconds)
    one = statistics.median(seconds["one rank"])
    for kind, all_of_them in seconds.items():
        median = statistics.median(all_of_them)
        print("%-22s serves after %.2f s, %.2f s more than one" % (kind, median, median - one))


@contextlib.contextmanager
def two_machines(delay_us=0):
    """Names of two network namespaces with a cable between them. A relay in this process adds the delay, since not every kernel has netem."""
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    names = ["slb%d-%d" % (os.getpid() % 100000, i) for i in range(2)]
    for name in names:
        ip("netns", "add", name)
    try:
        relay = Relay(names, delay_us * 1e-6) if delay_us is not None and delay_us > 0 else None
        if relay is None:
            ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "addr", "add", "10.56.0.%d/24" % (i + 1), "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        if relay is not None:
            relay.start()
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)


class Relay:
    """Forwards frames between two TAP devices, each after a delay."""

    def __init__(self, names, delay_s):
        import fcntl
        import struct
        self.delay_s, self.files = delay_s, []
        for name in names:
            tap = os.open("/dev/net/tun", os.O_RDWR)
            device = "slt%d" % (os.getpid() % 10000 * 10 + len(self.files))
            fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH", device.encode(), 0x1002))  # TUNSETIFF, IFF_TAP | IFF_NO_PI
            subprocess.run(["ip", "link", "set", device, "netns", name, "name", "eth0"], check=True)
            self.files.append(tap)

    def start(self):
        for source, target in (self.files, reversed(self.files)):
            frames = []
            wake = threading.Condition()
            threading.Thread(target=self.read, args=(source, frames, wake), daemon=True).start()
            threading.Thread(target=self.write, args=(target, frames, wake), daemon=True).start()

    def read(self, source, frames, wake):
        with contextlib.suppress(OSError):
            while True:
                frame = os.read(source, 65536)
                with wake:
                    frames.append((time.monotonic() + self.delay_s, frame))
                    wake.notify()

    @staticmethod
    def write(target, frames, wake):
        with contextlib.suppress(OSError):
            while True:
                with wake:
                    while not frames:
                        wake.wait()
                    due, frame = frames.pop(0)
                rest = due - time.monotonic()
                if rest > 0:
                    time.sleep(rest)
                os.write(target, frame)


@contextlib.contextmanager
def group(names):
    """Starts the machines; seconds from the last machine's start until the first one serves."""
    env = {**os.environ, "SLUICE_DISTRIBUTED_SECRET": "benchmark"}
    with tempfile.TemporaryFile() as log:
        processes = []
        for i, name in enumerate(names):
            if i > 0:
                time.sleep(1)
            processes.append(subprocess.Popen(
                ["ip", "netns", "exec", name, SLUICE, "serve", str(ABACUS), "-tp", "2", "--threads", "1", "--nnodes", "2", "--node-rank", str(i),
                 "--master-addr", "10.56.0.1", "--host", "127.0.0.1", "--port", "8000", "--served-model-name", "m"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env))
        begin = time.monotonic()
        try:
            while inside(names[0], "/health")[0] != 200:
                if any(process.poll() is not None for process in processes) or time.monotonic() - begin > START_S:
                    log.seek(0)
                    sys.exit("the group does not start:\n" + log.read().decode())
            yield time.monotonic() - begin
        finally:
            processes[0].send_signal(signal.SIGTERM)
            for process in processes:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def inside(name, path, body=None, count=1):
    """Sends `count` requests from inside a machine; returns (status, seconds of each)."""
    program = ("import http.client, json, sys, time\n"
               "path, body, count = json.loads(sys.argv[1])\n"
               "seconds, status = [], 0\n"
               "for _ in range(count):\n"
               "    c = http.client.HTTPConnection('127.0.0.1', 8000, timeout=60)\n"
               "    begin = time.monotonic()\n"
               "    try:\n"
               "        c.request('POST' if body else 'GET', path, json.dumps(body) if body else None, {'Content-Type': 'application/json'})\n"
               "        r = c.getresponse(); r.read(); status = r.status\n"
               "    except OSError: pass\n"
               "    seconds.append(time.monotonic() - begin)\n"
               "print(json.dumps([status, seconds]))\n")
    out = subprocess.run(["ip", "netns", "exec", name, sys.executable, "-c", program, json.dumps([path, body, count])], capture_output=True, text=True,
                         check=True).stdout
    return json.loads(out)


def machines(_):
    with two_machines() as names, group(names) as seconds:
        print("two machines serve %.2f s after the last one's start" % seconds)


def slow_cable(_):
    """Every exchange of a step waits for the cable once: a step takes longer by delay * number of exchanges."""
    config = json.loads((ABACUS / "config.json").read_text())
    # Four per layer, the embedding, the logits, and the description of the step: two messages, the second of which does
    # not wait.
    exchanges = 4 * config["num_hidden_layers"] + 2 + 1
    tokens, found = 64, {}
    for delay_us in (1, 1000, 3000):
        with two_machines(delay_us) as names, group(names):
            ask = {"model": "m", "prompt": "12 + 30 =", "temperature": 0, "ignore_eos": True}
            inside(names[0], "/v1/completions", {**ask, "max_tokens": tokens}, 2)
            many = statistics.median(inside(names[0], "/v1/completions", {**ask, "max_tokens": tokens}, 5)[1])
            few = statistics.median(inside(names[0], "/v1/completions", {**ask, "max_tokens": 1}, 5)[1])
            found[delay_us] = (many - few) / (tokens - 1)
    for delay_us, step in found.items():
        grown = step - found[1]
        expected = exchanges * (delay_us - 1) * 1e-6
        print("%4d us: a step of %.3f ms; %.3f ms more, %.3f by %d exchanges" % (delay_us, 1000 * step, 1000 * grown, 1000 * expected, exchanges))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("speed").add_argument("--rounds", type=int, default=5)
    for name in ("start", "machines", "slow-cable"):
        commands.add_parser(name)
    options = parser.parse_args()
    {"speed": speed, "start": start, "machines": machines, "slow-cable": slow_cable}[options.command](options)


if __name__ == "__main__":
    main()
