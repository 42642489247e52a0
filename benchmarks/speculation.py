#!/usr/bin/env python3
"""Measures the gain and cost of draft tokens: the same answers from servers with and without --speculative-config, alternately.

Usage: benchmarks/speculation.py [--tokens 128] [--rounds 3] NAME=PORT...

Each server answers one request at a time. `repeats`: greedy tokens after a prompt that ends with greedy tokens itself,
so many that with random weights they have begun to repeat. `draws`: tokens sampled at temperature 1, which hardly ever
repeat. Measures the time from the first token to the last. The other servers are compared with the first one; all answers
to the same question must be equal. A round asks every server for both kinds, each round about another subject, so that no
answer is known from before. Every server must serve its model as m.
"""
import argparse
import http.client
import json
import statistics
import time

LINE = "item = {'name': '%s', 'size': 1, 'color': 'red'};\n"
SUBJECTS = "apple bread chair drum eagle flute glass horse".split()
TOKENS_BEFORE = 192  # greedy tokens at the end of a `repeats` prompt


def ask(port, prompt, tokens, fields):
    """Seconds from the first token to the last, and the tokens with their logprobs."""
    body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "logprobs": 0, "return_tokens_as_token_ids": True, "stream": True, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    first, answer = None, []
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[len("data: "):])["choices"]:
            if choice.get("logprobs"):
                answer += zip(choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"])
        if answer and first is None:
            first = time.monotonic()
    return time.monotonic() - first, answer


def token_ids(answer):
    return [int(token.removeprefix("token_id:")) for token, _ in answer]


def tokenize(port, text):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/tokenize", json.dumps({"model": "m", "prompt": text}), {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())["tokens"]


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
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, len(SUBJECTS) + 1))
    parser.add_argument("servers", nargs="+", metavar="NAME=PORT")
    options = parser.parse_args()
    servers = [(name, int(port)) for name, port in (word.split("=") for word in options.servers)]
    loads = {"repeats": {"temperature": 0}, "draws": {"temperature": 1, "seed": 1}}
    rates = {(name, load): [] for name, _ in servers for load in loads}
    for round_number in range(options.rounds):
        begin = tokenize(servers[0][1], LINE % SUBJECTS[round_number] * 6)
        prompts = {"draws": begin, "repeats": begin + token_ids(ask(servers[0][1], begin, TOKENS_BEFORE, loads["repeats"])[1])}
        for load, fields in loads.items():
            spoken = None
            for name, port in servers:
                before = counters(port)
                took, answer = ask(port, prompts[load], options.tokens, fields)
                spoken = spoken or answer
                assert answer == spoken, "%s: %s answered otherwise" % (load, name)
                now = counters(port)
                rates[name, load].append((options.tokens - 1) / took)
                if round_number == options.rounds - 1:
                    print(load, name, {key: now[key] - before.get(key, 0) for key in now})
    for load in loads:
        first = servers[0][0]
        for name, _ in servers:
            ratios = [a / b for a, b in zip(rates[name, load], rates[first, load])]
            print("%-8s %-12s %7.1f tokens/s, %.2f x %s (%.2f to %.2f)" % (
                load, name, statistics.median(rates[name, load]), statistics.median(ratios), first, min(ratios), max(ratios)))


if __name__ == "__main__":
    main()
