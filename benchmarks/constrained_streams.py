#!/usr/bin/env python3
"""Measures the cost of constraints: the same load with and without a JSON schema, alternately, several times.

Usage: benchmarks/constrained_streams.py [--streams 32] [--tokens 32] [--rounds 3] NAME=PORT:PID...

Each stream has its own schema, of 20 properties, and ends after a fixed number of tokens, so that both loads have equally many.
PID is the server's process: the processor time of it and its children is read from /proc, because other programs
may use the machine, too. Tokens are sampled at temperature 1 with a seed. A round asks every server for both loads; the
first round, in which schemas are compiled, does not count. Every server must serve its model as m.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import statistics
import time

KINDS = [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 150}, {"type": "boolean"},
         {"type": "array", "items": {"type": "number"}, "maxItems": 5}, {"enum": ["red", "green", "blue"]}]


def schema(stream):
    names = ["property_%d_%d" % (stream, i) for i in range(20)]
    return {"type": "object", "properties": {name: KINDS[i % len(KINDS)] for i, name in enumerate(names)},
            "required": names, "additionalProperties": False}


def processor_seconds(pid):
    """Processor time of a process and all its descendants."""
    parents, seconds = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry) as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue  # the process has ended
        parents[int(entry)] = int(fields[1])
        seconds[int(entry)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    total = 0.0
    for process in seconds:
        above = process
        while above not in (pid, 0):
            above = parents.get(above, 0)
        if above == pid:
            total += seconds[process]
    return total


def ask(port, stream, tokens, constrained):
    body = {"model": "m", "prompt": "Answer number %d, please, in JSON:" % stream, "max_tokens": tokens,
            "temperature": 1, "seed": stream}
    if constrained:
        body["structured_outputs"] = {"json": schema(stream)}
    else:
        body["ignore_eos"] = True
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    if "usage" not in answer:
        raise SystemExit("port %d answered %s" % (port, answer))
    return answer["usage"]["completion_tokens"]


def load(server, streams, tokens, constrained):
    """Runs `streams` streams at once; returns tokens, seconds and processor seconds."""
    before, start = processor_seconds(server["pid"]), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        counts = list(pool.map(lambda stream: ask(server["port"], stream, tokens, constrained), range(streams)))
    return sum(counts), time.monotonic() - start, processor_seconds(server["pid"]) - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("servers", nargs="+", metavar="NAME=PORT:PID")
    arguments = parser.parse_args()
    servers = []
    for server in arguments.servers:
        name, place = server.split("=")
        port, pid = place.split(":")
        servers.append({"name": name, "port": int(port), "pid": int(pid), True: [], False: [], "ratios": []})
    for number in range(arguments.rounds + 1):
        for server in servers:
            speeds = {}
            for constrained in (False, True) if number % 2 else (True, False):
                tokens, wall, processor = load(server, arguments.streams, arguments.tokens, constrained)
                speeds[constrained] = tokens / processor
                if number > 0:
                    server[constrained].append((tokens / wall, tokens / processor))
                print("%d %-8s %-14s %5d tokens, %6.2f s, %6.2f s of processor" % (
                    number, server["name"], "constrained" if constrained else "free", tokens, wall, processor), flush=True)
            if number > 0:
                server["ratios"].append(speeds[True] / speeds[False])
    print("\n| server | streams | tokens/s | tokens a second of processor time |\n|---|---|---|---|")
    for server in servers:
        for constrained in (False, True):
            wall, processor = (statistics.median(column) for column in zip(*server[constrained]))
            print("| %s | %s | %.1f | %.2f |" % (server["name"], "constrained" if constrained else "free", wall, processor))
        print("| %s | ratio, median of %d pairs | | %.3f |" % (
            server["name"], len(server["ratios"]), statistics.median(server["ratios"])))


if __name__ == "__main__":
    main()
