#!/usr/bin/env python3
"""Asks a running server the held-out problems and counts the exact answers.

    python measure.py --url http://127.0.0.1:8000 --model abacus --file models/abacus/heldout.jsonl

Needs the standard library only. An answer is right when the number after the
last `####` is the reference's. Exits with 1 when fewer are right than
--at-least says, and with 2 when a request fails.
"""
import argparse
import json
import re
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor


def final(text):
    found = re.findall(r"####\s*\$?(-?[\d,]+(?:\.\d+)?)", text or "")
    return found[-1].replace(",", "") if found else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", default="http://127.0.0.1:8000", help="the server's address, without /v1")
    p.add_argument("--model", default="abacus")
    p.add_argument("--file", default="models/abacus/heldout.jsonl")
    p.add_argument("--limit", type=int, help="only the first so many problems")
    p.add_argument("--concurrency", type=int, default=8)
    p.add_argument("--max-tokens", type=int, default=160)
    p.add_argument("--timeout", type=float, default=120)
    p.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT")
    p.add_argument("--api-key")
    p.add_argument("--show-wrong", type=int, default=0, metavar="N")
    args = p.parse_args()

    with open(args.file) as f:
        rows = [json.loads(line) for line in f if line.strip()][:args.limit]
    headers = {"Content-Type": "application/json"}
    if args.api_key:
        headers["Authorization"] = "Bearer " + args.api_key

    def ask(row):
        body = {"model": args.model, "temperature": 0, "max_tokens": args.max_tokens,
                "messages": [{"role": "user", "content": row["question"]}]}
        request = urllib.request.Request(args.url.rstrip("/") + "/v1/chat/completions",
                                         json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=args.timeout) as reply:
            return json.load(reply)["choices"][0]["message"]["content"]

    began = time.time()
    try:
        with ThreadPoolExecutor(args.concurrency) as pool:
            answers = list(pool.map(ask, rows))
    except OSError as e:
        print(f"the server did not answer: {e}", file=sys.stderr)
        return 2

    kinds, right, shown = {}, 0, 0
    for row, answer in zip(rows, answers):
        ok = final(answer) == final(row["answer"])
        count = kinds.setdefault(row.get("kind", "all"), [0, 0])
        count[0] += ok
        count[1] += 1
        right += ok
        if not ok and shown < args.show_wrong:
            shown += 1
            print(f"wrong: {row['question']}\n  expected: {row['answer']!r}\n  got:      {answer!r}")
    for kind, (good, all_) in kinds.items():
        print(f"{kind:16} {good:4} of {all_:4}  {100 * good / all_:5.1f} %")
    percent = 100 * right / max(1, len(rows))
    print(f"{right} of {len(rows)} right ({percent:.1f} %), {time.time() - began:.1f} s")
    return 0 if percent >= args.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
