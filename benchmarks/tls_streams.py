#!/usr/bin/env python3
"""Compares the rate of streams over TLS with plain HTTP: curl sends requests alternately to two servers of the same model.

    benchmarks/tls_streams.py --program build/release/bin/sluice --pairs 7

Each run has --streams concurrent clients, each of which reads one answer of --tokens tokens, one event per token. Since the machine
may do other work, runs come in pairs of alternating order, and the medians of two ratios count: of tokens per second, and of tokens per second
of the server's processor time, which other programs affect less. The server computes with one thread: several would wait for each other by spinning
while other programs keep one of them from running.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
READY = re.compile(r"serving .* at https?://\S*:(\d+), ready in")


def start(program, model, log, *flags):
    """Starts a server on a port that the system chooses; returns process and port."""
    process = subprocess.Popen([program, "serve", model, "--host", "127.0.0.1", "--port", "0", "--served-model-name", "m", *flags],
                               stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    while True:
        found = READY.search(pathlib.Path(log.name).read_text())
        if found:
            return process, int(found[1])
        if process.poll() is not None:
            raise SystemExit("the server ended at start: " + pathlib.Path(log.name).read_text())
        time.sleep(0.1)


def processor_seconds(process):
    fields = pathlib.Path("/proc/%d/stat" % process.pid).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tokens_per_second(process, url, streams, tokens):
    """Tokens per second of wall-clock time, from the first byte of each stream to its last, so without handshakes; and of processor time."""
    body = ('{"model": "m", "prompt": "Tom has 3 apples.", "max_tokens": %d, "ignore_eos": true, "stream": true, "temperature": 0}'
            % tokens)
    spent, rate = processor_seconds(process), 0
    clients = [subprocess.Popen(["curl", "--silent", "--fail", "--insecure", "--no-buffer", "--output", os.devnull,
                                 "--write-out", "%{size_download} %{time_starttransfer} %{time_total}", "--json", body, url + "/v1/completions"],
                                stdout=subprocess.PIPE) for _ in range(streams)]
    for client in clients:
        size, first, last = map(float, client.communicate()[0].split())
        # An event contains JSON around its token.
        if client.returncode != 0 or size < 100 * tokens:
            raise SystemExit("a stream of %s has failed after %d bytes" % (url, size))
        rate += tokens / (last - first)
    return rate, streams * tokens / (processor_seconds(process) - spent)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "bin" / "sluice"))
    parser.add_argument("--model", default=str(ROOT / "models" / "abacus"))
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=800)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="threads of a server that compute; 0: one for each core")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "plain.log"), "w") as plain_log, \
            open(os.path.join(folder, "tls.log"), "w") as tls_log:
        certificate, key = os.path.join(folder, "tls.crt"), os.path.join(folder, "tls.key")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                        "-subj", "/CN=127.0.0.1"], check=True, capture_output=True)
        flags = ("--max-num-seqs", str(options.streams), "--threads", str(options.threads), "--log-level", "info", "--disable-uvicorn-access-log")
        servers = []
        try:
            for log, more in ((plain_log, ()), (tls_log, ("--ssl-certfile", certificate, "--ssl-keyfile", key))):
                servers.append(start(options.program, options.model, log, *flags, *more))
            targets = [(process, "%s://127.0.0.1:%d" % (scheme, port)) for scheme, (process, port) in zip(("http", "https"), servers)]
            for process, url in targets:
                tokens_per_second(process, url, options.streams, 50)
            ratios = []
            for pair in range(options.pairs):
                rates = [None, None]
                for index in ((0, 1) if pair % 2 == 0 else (1, 0)):
                    rates[index] = tokens_per_second(*targets[index], options.streams, options.tokens)
                ratios.append([tls / plain for plain, tls in zip(*rates)])
                print("plain %7.0f tokens/s   TLS %7.0f   ratio %.3f   of processor time %7.0f %7.0f   ratio %.3f"
                      % (rates[0][0], rates[1][0], ratios[-1][0], rates[0][1], rates[1][1], ratios[-1][1]), flush=True)
            print("medians of %d ratios: %.3f by the clock, %.3f by processor time (load %.1f on %d processors)"
                  % (len(ratios), *(statistics.median(ratio) for ratio in zip(*ratios)), os.getloadavg()[0], os.cpu_count()))
        finally:
            for process, _ in servers:
                process.terminate()
            for process, _ in servers:
                process.wait()


if __name__ == "__main__":
    main()
