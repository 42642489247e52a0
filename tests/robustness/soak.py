#!/usr/bin/env python3
"""Runs an hour of mixed load on the ASan build of the program: memory must not grow, answers must not change, and nothing may leak.

Usage: tests/robustness/soak.py [--write]    SOAK_SECONDS: 3600 by default; SLUICE_BIN: build/asan/bin by default
Prints a line per minute and one at the end; --write stores the figures for docs/security.md. Exits with 1 if a check failed.
"""
import collections
import datetime
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("SLUICE_BIN", str(ROOT / "build" / "asan" / "bin"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import raw_http  # noqa: E402
from survival import Survival, resident_bytes  # noqa: E402

from serving import ABACUS, BIN, events, serving  # noqa: E402

SECONDS = int(os.environ.get("SOAK_SECONDS", "3600"))
RECORD = ROOT / "tests" / "robustness" / "last_soak.json"
CLIENTS = 6
# ASan keeps freed memory for a while to detect late uses. A small limit keeps this memory from growing.
SANITIZERS = {"ASAN_OPTIONS": "quarantine_size_mb=8:detect_leaks=1:exitcode=23", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
# Blocks for only 768 tokens, far fewer than the prompts need, so that the prefix cache evicts and sequences
# are preempted.
FLAGS = ("--max-model-len", 512, "--num-gpu-blocks-override", 48, "--max-num-seqs", 16, "--max-num-queued-reqs", 64, "--max-request-bytes", "4MiB",
         "--disable-uvicorn-access-log")
# Tolerated growth of the median resident memory, from the second quarter of the run to the last.
MORE_FACTOR, MORE_BYTES = 1.05, 16 << 20


class Client:
    def __init__(self, server, number):
        self.server, self.seeds, self.done = server, random.Random(number), collections.Counter()

    def prompt(self, tokens):
        return [self.seeds.randrange(10, 400) for _ in range(tokens)]

    def body(self, **fields):
        return {"model": "m", "prompt": self.prompt(self.seeds.randint(1, 300)), "max_tokens": self.seeds.randint(1, 60),
                "temperature": self.seeds.choice([0, 1]), **fields}

    def expect(self, statuses, path, body):
        status, _, text = self.server.request("POST", path, body)
        assert status in statuses, (status, text[:300])
        return status, text

    def whole(self):
        self.expect((200, 503), "/v1/completions", self.body(n=self.seeds.randint(1, 3), temperature=1, logprobs=self.seeds.choice([None, 5])))

    def stream(self):
        status, text = self.expect((200, 503), "/v1/completions", self.body(stream=True, ignore_eos=True))
        assert status == 503 or events(text)[-1] == "[DONE]"

    def chat(self):
        text = "".join(self.seeds.choice("abcde 12345\n\u00e9\u4e2d") for _ in range(self.seeds.randint(1, 200)))
        self.expect((200, 503), "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 20})

    def schema(self):
        fields = {"name%d" % i: {"type": self.seeds.choice(["string", "integer", "boolean"])} for i in range(self.seeds.randint(1, 6))}
        schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
        status, text = self.expect((200, 503), "/v1/chat/completions", {
            "model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 80, "temperature": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}})
        if status == 200:
            choice = json.loads(text)["choices"][0]
            assert choice["finish_reason"] == "length" or set(json.loads(choice["message"]["content"])) == set(fields), text[:300]

    def leave(self):
        with raw_http.connect(self.server) as client:
            client.sendall(raw_http.post("/v1/completions", self.body(stream=True, ignore_eos=True)))
            if self.seeds.random() < 0.7:
                client.recv(self.seeds.randint(1, 3000))

    def large(self):
        size = self.seeds.randint(1 << 18, 5 << 20)
        body = json.dumps({"model": "m", "prompt": "x y" * (size // 3)}).encode()
        self.expect((200, 400, 413, 503), self.seeds.choice(["/tokenize", "/v1/completions"]), body)

    def bad(self):
        data = bytearray(raw_http.post("/v1/completions", self.body(), "Connection: close"))
        for _ in range(self.seeds.randint(1, 5)):
            data[self.seeds.randrange(len(data))] = self.seeds.randrange(256)
        assert raw_http.status_of(raw_http.send_and_read(self.server, bytes(data), half_close=True)) not in (500, 502)

    def wrong(self):
        field = self.seeds.choice(["temperature", "top_p", "n", "max_tokens", "logprobs", "stop", "model", "prompt"])
        self.expect((200, 400, 404, 422, 503), "/v1/completions", self.body(**{field: self.seeds.choice([-1, "x", None, [], {}, 1e300])}))

    def scrape(self):
        assert self.server.get("/metrics")[0] == 200

    def run(self, end, failures):
        works = [self.whole] * 4 + [self.stream] * 4 + [self.chat] * 2 + [self.schema] * 2 + [self.leave] * 4 + [self.large, self.bad, self.wrong, self.scrape]
        while time.monotonic() < end and not failures:
            work = self.seeds.choice(works)
            try:
                work()
            except Exception as problem:  # reported at the end, together with the other clients' problems
                failures.append("%s: %r" % (work.__name__, problem))
            self.done[work.__name__] += 1


def slope(times, values):
    """Slope of the least squares line."""
    t, v = statistics.fmean(times), statistics.fmean(values)
    return sum((a - t) * (b - v) for a, b in zip(times, values)) / sum((a - t) ** 2 for a in times)


def soak():
    failures, samples, checks = [], [], 0
    with serving(ABACUS, *FLAGS, env=SANITIZERS) as server:
        survival = Survival(server)
        begin = time.monotonic()
        clients = [Client(server, i) for i in range(CLIENTS)]
        threads = [threading.Thread(target=client.run, args=(begin + SECONDS, failures)) for client in clients]
        for thread in threads:
            thread.start()
        next_news = begin + 60
        while any(thread.is_alive() for thread in threads):
            if server.process.poll() is not None:
                failures.append("the server ended with %d: %s" % (server.process.returncode, server.log()[-4000:]))
                break
            samples.append((time.monotonic() - begin, resident_bytes(server.process.pid)))
            for prompt, want in zip(("Anna has 12 pens and buys 7.", "Tom has 3 apples. "), survival.answers):
                try:
                    checks += 1
                    if survival.ask(prompt) != want:
                        failures.append("another answer to %r" % prompt)
                except AssertionError as refused:  # 503 is also a valid answer under load
                    if "503" not in str(refused) and "Overloaded" not in str(refused):
                        failures.append(repr(refused))
                except OSError as problem:
                    failures.append(repr(problem))
            if time.monotonic() > next_news:
                next_news += 60
                print("%4d s: %d MiB, %d requests" % (samples[-1][0], samples[-1][1] >> 20, sum(sum(c.done.values()) for c in clients)), flush=True)
            time.sleep(1)
        for thread in threads:
            thread.join()
        preemptions = code = None
        if not failures:
            survival.settle()
            preemptions = server.metric("vllm:num_preemptions_total")
            if [survival.ask(prompt) for prompt in ("Anna has 12 pens and buys 7.",)] != survival.answers[:1]:
                failures.append("another answer at the end")
            code = server.stop()
            if code != 0:
                failures.append("exit code %d: %s" % (code, server.log()[-4000:]))
        log = server.log()
        for word in ("AddressSanitizer", "LeakSanitizer", "runtime error"):
            if word in log:
                failures.append(log[log.index(word):][:4000])
    quarter = max(1, len(samples) // 4)
    second = statistics.median(size for _, size in samples[quarter:2 * quarter] or samples)
    last = statistics.median(size for _, size in samples[-quarter:])
    if last > second * MORE_FACTOR + MORE_BYTES:
        failures.append("resident memory grew from %d to %d MiB" % (int(second) >> 20, int(last) >> 20))
    later = samples[quarter:] if len(samples) > 8 else samples
    record = {"date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "seconds": SECONDS,
              "program": "/".join(BIN.parts[-3:]), "requests": dict(sum((c.done for c in clients), collections.Counter())), "checked_answers": checks,
              "preemptions": preemptions, "resident_mib_second_quarter": round(second / 2**20, 1), "resident_mib_last_quarter": round(last / 2**20, 1),
              "slope_mib_per_hour": round(slope(*zip(*later)) * 3600 / 2**20, 1) if len(later) > 1 else None, "exit_code": code, "failures": failures}
    return record


def main():
    record = soak()
    if "--write" in sys.argv[1:]:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))
    print("soak: %s" % ("failed" if record["failures"] else "held"))
    return 1 if record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
