"""Shared by the peers' workers: a process holds one model and measures the loads that it reads from standard input, a line
of JSON each. Other output of the engine goes to its log."""
import json
import os
import random
import sys
import time


class Streams:
    """The times at which the streams of a load got tokens."""

    def __init__(self, count, tokens):
        self.counts = [0] * count
        self.wanted = tokens
        self.start = time.monotonic()
        self.all_started = None
        self.end = None

    def add(self, stream, tokens=1):
        self.counts[stream] += tokens
        if self.all_started is None and min(self.counts) > 0:
            self.all_started = time.monotonic()
            self.before = sum(self.counts)

    def finish(self):
        self.end = time.monotonic()
        assert min(self.counts) >= self.wanted, "%s of %d tokens" % (self.counts, self.wanted)

    def result(self):
        decoded = sum(self.counts) - self.before
        seconds = self.end - self.all_started
        return {"prefill_seconds": self.all_started - self.start,
                "decode_tokens_per_second": decoded / seconds if decoded > 0 else None}


def prompts(vocabulary, count, length, seed):
    draw = random.Random(seed)
    return [[draw.randrange(10, vocabulary - 10) for _ in range(length)] for _ in range(count)]


def serve(load):
    """Runs a worker. `load(options)` returns measure(prompts, tokens) -> Streams and the vocabulary's size. The first line of input is the options."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(value):
        channel.write(json.dumps(value) + "\n")
        channel.flush()

    try:
        measure, vocabulary = load(json.loads(sys.stdin.readline()))
    except Exception as error:  # reported in the row
        say({"error": "%s: %s" % (type(error).__name__, str(error).strip()[:300])})
        raise
    say({"ready": True})
    for number, line in enumerate(sys.stdin):
        asked = json.loads(line)
        try:
            given = prompts(vocabulary, asked["streams"], asked["prompt"], number)
            say(measure(given, asked["tokens"]).result())
        except Exception as error:
            say({"error": "%s: %s" % (type(error).__name__, str(error).strip()[:300])})
            raise
