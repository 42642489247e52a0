#!/usr/bin/env python3
"""Sends 500 questions of models/abacus/heldout.jsonl to a server, as the trials of docs/shadow.md do: `tools/shadow_load.py http://127.0.0.1:8000`.

Alternates between chats and completions; every second request is streamed. `--temperature 0.8` samples the answers. Prints how many
requests were answered.
"""
import argparse
import concurrent.futures
import json
import pathlib
import urllib.request

QUESTIONS = pathlib.Path(__file__).resolve().parents[1] / "models" / "abacus" / "heldout.jsonl"


def bodies(count, temperature):
    lines = QUESTIONS.read_text().splitlines()
    for i in range(count):
        question = json.loads(lines[i % len(lines)])["question"]
        body = {"model": "abacus", "temperature": temperature, "max_tokens": 96, "stream": i % 4 >= 2}
        if i % 2 == 0:
            yield "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": question}]}
        else:
            yield "/v1/completions", {**body, "prompt": "Question: %s\nAnswer:" % question, "stop": ["\n\n"]}


def send(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()
        return answer.status


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--at-once", type=int, default=4)
    words = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(words.at_once) as pool:
        statuses = list(pool.map(lambda item: send(words.url, *item), bodies(words.count, words.temperature)))
    print("%d of %d answered" % (statuses.count(200), len(statuses)))


if __name__ == "__main__":
    main()
