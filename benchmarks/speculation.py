#!/usr/bin/env python3
"""What proposed tokens gain and cost: the same answers from servers with and without --speculative-config, in turn.

Usage: benchmarks/speculation.py [--tokens 128] [--rounds 5] NAME=PORT...

Each server answers one request at a time. `repeats`: the likeliest tokens behind a prompt that says the same again and
again. `draws`: tokens drawn at temperature 1, of which hardly any follows from those before where the weights are random.
The first server is the one that the others are compared with; all answers to the same question have to be equal. A round
asks every server for both, and the first does not count. Every server serves its model as m.
"""
import argparse
import http.client
import json
import statistics
import time

LINE = "item = {'name': 'a', 'size': 1, 'color': 'red'};\n"


def ask(port, tokens, fields):
    body = {"model": "m", "max_tokens": tokens, "ignore_eos": True, "logprobs": 0, "return_tokens_as_token_ids": True, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    start = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return time.monotonic() - start, answer["choices"][0]["logprobs"]


def counters(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    found = {}
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith("vllm:spec_decode_num_") and "per_pos" not in line:
            found[line.split("{")[0][len("vllm:spec_decode_num_"):]] = float(line.rsplit(" ", 1)[1])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("servers", nargs="+", metavar="NAME=PORT")
    options = parser.parse_args()
    servers = [(name, int(port)) for name, port in (word.split("=") for word in options.servers)]
    loads = {"repeats": {"prompt": LINE * 6, "temperature": 0}, "draws": {"prompt": LINE * 6, "temperature": 1, "seed": 1}}
    seconds = {(name, load): [] for name, _ in servers for load in loads}
    spoken = {}
    for round_number in range(options.rounds + 1):
        for load, fields in loads.items():
            for name, port in servers:
                before = counters(port)
                took, answer = ask(port, options.tokens, {**fields, "cache_salt": "round %d" % round_number})
                assert answer == spoken.setdefault(load, answer), "%s: %s answered otherwise" % (load, name)
                now = counters(port)
                accepted = {key: now[key] - before.get(key, 0) for key in now}
                if round_number > 0:
                    seconds[name, load].append(took)
                if round_number == options.rounds:
                    print(load, name, accepted)
    for load in loads:
        first = servers[0][0]
        for name, _ in servers:
            ratios = [a / b for a, b in zip(seconds[first, load], seconds[name, load])]
            print("%-8s %-12s %7.1f tokens/s, %.2f x %s (%.2f to %.2f)" % (
                load, name, options.tokens / statistics.median(seconds[name, load]), statistics.median(ratios), first,
                min(ratios), max(ratios)))


if __name__ == "__main__":
    main()
