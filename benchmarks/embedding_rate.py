#!/usr/bin/env python3
"""Measures embeddings of 512 texts of 128 tokens on the shape of BGE-small: this server, sentence-transformers and another server.

    benchmarks/embedding_rate.py make FOLDER
    sluice serve FOLDER --runner pooling --served-model-name m --port PORT
    benchmarks/embedding_rate.py measure FOLDER PORT PID [--other PORT PID] [--rounds 5]

`make` writes a model of random weights in sentence-transformers' format; its vocabulary consists of whole words, so that a text of 126 words has
128 tokens. `measure` asks the servers and sentence-transformers (batches of 32, two threads) in turn, all texts in one
request, after a warm-up round; it also compares the vectors. Both need torch and sentence-transformers. The processor time of process
PID measures the work even if other programs use the cores.
"""
import argparse
import http.client
import json
import os
import pathlib
import statistics
import time

import numpy
import torch

WORDS, TEXTS, LENGTH = 30000, 512, 128
# The shape of BAAI/bge-small-en-v1.5.
SHAPE = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512,
         "vocab_size": WORDS + 5}


def make(options):
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast
    torch.manual_seed(1)
    inner = options.folder / "inner"
    inner.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["w%d" % i for i in range(WORDS)]
    (inner / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizerFast(vocab=str(inner / "vocab.txt")).save_pretrained(inner)
    BertModel(BertConfig(**SHAPE)).save_pretrained(inner)
    transformer = models.Transformer(str(inner), max_seq_length=512)
    pooling = models.Pooling(SHAPE["hidden_size"], pooling_mode="cls")
    SentenceTransformer(modules=[transformer, pooling, models.Normalize()]).save(str(options.folder))


def texts():
    return [" ".join("w%d" % ((text * 7919 + i * 104729) % WORDS) for i in range(LENGTH - 2)) for text in range(TEXTS)]


def processor_seconds(pid):
    fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/embeddings", json.dumps({"model": "m", "input": texts()}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    assert answer["usage"]["prompt_tokens"] == TEXTS * LENGTH, answer["usage"]
    return numpy.array([row["embedding"] for row in answer["data"]])


def measure(options):
    from sentence_transformers import SentenceTransformer
    torch.set_num_threads(2)
    library = SentenceTransformer(str(options.folder), device="cpu")
    kinds = {"sentence-transformers": (lambda: library.encode(texts(), batch_size=32), os.getpid()),
             "this server": (lambda: ask(options.port), options.pid)}
    if options.other:
        kinds["other server"] = (lambda: ask(options.other[0]), options.other[1])
    seconds, vectors = {kind: [] for kind in kinds}, {}
    for round_number in range(options.rounds + 1):
        for kind, (run, pid) in kinds.items():
            wall, processor = time.monotonic(), processor_seconds(pid)
            vectors[kind] = run()
            if round_number > 0:
                seconds[kind].append((time.monotonic() - wall, processor_seconds(pid) - processor))
    base, expected = seconds["sentence-transformers"], vectors["sentence-transformers"]
    for kind, taken in seconds.items():
        speeds = [statistics.median(b[i] / t[i] for b, t in zip(base, taken)) for i in range(2)]
        cosine = (vectors[kind] * expected).sum(axis=1) / numpy.linalg.norm(vectors[kind], axis=1) / numpy.linalg.norm(expected, axis=1)
        print("%-22s %6.2f s, %6.2f s of processors: %.2f and %.2f x sentence-transformers; least cosine %.6f" % (
            kind, *(statistics.median(t[i] for t in taken) for i in range(2)), *speeds, cosine.min()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    model = commands.add_parser("make")
    model.set_defaults(run=make)
    speed = commands.add_parser("measure")
    speed.set_defaults(run=measure)
    for command in (model, speed):
        command.add_argument("folder", type=pathlib.Path)
    speed.add_argument("port", type=int)
    speed.add_argument("pid", type=int)
    speed.add_argument("--other", type=int, nargs=2)
    speed.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
