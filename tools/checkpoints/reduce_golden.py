#!/usr/bin/env python3
"""Reduces a golden.json with full rows of logits to what the tests compare: the 20 most likely tokens of each row.

    reduce_golden.py full/golden.json tests/data/checkpoints/<name>/golden.json

In: {"cases": [{"prompt": [ids], "positions": [..], "logits": [[one row a position]], "greedy": [ids], "margin": [..]}]}.
Out: the same cases with "top_ids" and "top_logprobs" (descending) instead of "logits".
"""
import json
import math
import sys

TOP = 20


def reduce_case(case):
    ids, logprobs = [], []
    for logits in case["logits"]:
        largest = max(logits)
        log_sum = largest + math.log(sum(math.exp(x - largest) for x in logits))
        order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:TOP]
        ids.append(order)
        logprobs.append([round(logits[i] - log_sum, 6) for i in order])
    return {
        "prompt": case["prompt"],
        "positions": case["positions"],
        "top_ids": ids,
        "top_logprobs": logprobs,
        "greedy": case["greedy"],
        "margin": [round(margin, 5) for margin in case["margin"]],
    }


def main():
    source, target = sys.argv[1:]
    with open(source) as file:
        golden = json.load(file)
    with open(target, "w") as file:
        json.dump({"cases": [reduce_case(case) for case in golden["cases"]]}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
