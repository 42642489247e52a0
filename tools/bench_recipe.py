#!/usr/bin/env python3
"""Runs a recipe's benchmark for large models on the bundled model: 2,560 prompts of 1,024 tokens, 1,024 output tokens each, concurrency 512.

Usage: tools/bench_recipe.py [--concurrency N] [--prompts N] [--input-len N] [--output-len N] [--serve-options WORD ...]
Prints the table and five samples of the server's memory; exits with 1 if a request failed or the server's memory grew in the second half of
the run. Takes tens of minutes on two cores.

The KV cache is just large enough for all streams. The system counts a page once it is written, so all of the cache counts in the first
half.
"""
import argparse
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
READY_S = 120
# Tolerated growth of memory: pages of sockets and of the allocator.
SLACK_BYTES = 32 << 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def resident_bytes(pid):
    for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid):
    fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Memory(threading.Thread):
    """Samples a process's memory every second until stopped."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.samples, self.stopping = pid, [], threading.Event()

    def run(self):
        while not self.stopping.wait(1):
            try:
                self.samples.append(resident_bytes(self.pid))
            except OSError:
                return


def wait_ready(server, url, log):
    end = time.time() + READY_S
    while True:
        try:
            with urllib.request.urlopen(url + "/health", timeout=2) as reply:
                if reply.status == 200:
                    return
        except OSError:
            pass
        if server.poll() is not None or time.time() > end:
            sys.exit("the server did not start:\n" + pathlib.Path(log).read_text())
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--concurrency", type=int, default=512)
    parser.add_argument("--prompts", type=int, default=2560)
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--output-len", type=int, default=1024)
    parser.add_argument("--bin", default=str(ROOT / "build" / "release" / "bin"))
    parser.add_argument("--serve-options", default="", help="further options of the server, as one word")
    options = parser.parse_args()
    config = json.loads((ROOT / "models" / "abacus" / "config.json").read_text())
    token_bytes = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    length = options.input_len + options.output_len + 64
    port = free_port()
    url = "http://127.0.0.1:%d" % port
    model = str(ROOT / "models" / "abacus")
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "server.log")
        with open(log, "w") as out:
            server = subprocess.Popen([os.path.join(options.bin, "vllm"), "serve", model, "--host", "127.0.0.1", "--port", str(port),
                                       "--max-num-seqs", str(options.concurrency), "--max-model-len", str(length),
                                       "--kv-cache-memory-bytes", str(options.concurrency * length * token_bytes),
                                       *shlex.split(options.serve_options)], stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_ready(server, url, log)
            memory = Memory(server.pid)
            memory.start()
            start = time.time()
            client = subprocess.Popen([os.path.join(options.bin, "vllm"), "bench", "serve", "--host", "127.0.0.1", "--port", str(port), "--model", model,
                                       "--trust-remote-code", "--dataset-name", "random", "--random-input-len", str(options.input_len),
                                       "--random-output-len", str(options.output_len), "--ignore-eos", "--max-concurrency", str(options.concurrency),
                                       "--num-prompts", str(options.prompts), "--save-result", "--result-dir", folder, "--result-filename", "r.json"])
            used = 0.0
            while client.poll() is None:
                try:
                    used = cpu_seconds(client.pid)
                except OSError:
                    pass
                time.sleep(0.2)
            wall = time.time() - start
            memory.stopping.set()
            memory.join()
            server_used = cpu_seconds(server.pid)
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
                server.wait(60)
        if client.returncode:
            sys.exit("bench serve ended with %d" % client.returncode)
        result = json.loads(pathlib.Path(folder, "r.json").read_text())
    samples = memory.samples or [0]
    tenths = [samples[min(len(samples) - 1, len(samples) * i // 10)] for i in (1, 3, 5, 7, 10)]
    print("server memory at 10, 30, 50, 70 and 100 %% of the run: %s MiB; most %d MiB" % (
        ", ".join("%d" % (t >> 20) for t in tenths), max(samples) >> 20))
    print("processor time: server %.1f s, client %.1f s (%.1f %% of a core) in %.1f s" % (server_used, used, 100 * used / wall, wall))
    grown = max(samples[len(samples) // 2:]) - samples[len(samples) // 2]
    flat = grown <= SLACK_BYTES
    print("completed %d of %d, failed %d; memory %s" % (result["completed"], options.prompts, result["failed"],
                                                      "flat" if flat else "grew by %d MiB" % (grown >> 20)))
    sys.exit(0 if flat and result["completed"] == options.prompts else 1)


if __name__ == "__main__":
    main()
