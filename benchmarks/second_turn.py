#!/usr/bin/env python3
"""Time to the first token of a second turn on a long prefix: computed again, loaded back from memory, and from files after a restart.

    python3 benchmarks/second_turn.py build/release/bin/sluice --tokens 16384

The model is the shape of Llama 3.2 1B with few layers and random weights, so that the prefix is computed within seconds. Also prints
the time of a start, of falling asleep and of waking up, and the resident memory meanwhile.
"""
import argparse
import http.client
import json
import pathlib
import random
import tempfile
import time

import local_server
import random_weights

SHAPE = pathlib.Path(__file__).parent / "llama-3.2-1b-shape"
BLOCK = 16


def first_token_seconds(port, tokens):
    """(seconds until the first token, number of cached tokens)."""
    body = {"model": "m", "prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    begin = time.monotonic()
    status, text = local_server.request(port, "POST", "/v1/completions", body)
    seconds = time.monotonic() - begin
    assert status == 200, text
    return seconds, (json.loads(text)["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def resident_mib(pid):
    status = pathlib.Path("/proc/%d/status" % pid).read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def post(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    begin = time.monotonic()
    connection.request("POST", path)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    assert reply.status == 200, text
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--kv-offloading-path", help="folder of the files; a temporary one by default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / "model"
        config = json.loads((SHAPE / "config.json").read_text())
        config["num_hidden_layers"] = args.layers
        random_weights.write_checkpoint(model, config, "bf16")
        files = args.kv_offloading_path or pathlib.Path(scratch) / "kv"
        words = [model, "--tokenizer", SHAPE.parents[1] / "models" / "abacus", "--max-model-len", args.tokens + 256, "--block-size", BLOCK,
                 "--num-gpu-blocks-override", (args.tokens + 256) // BLOCK, "--max-num-seqs", 2, "--kv-offloading-size", 2,
                 "--kv-offloading-path", files, "--kv-offloading-write-rate", 0, "--enable-prompt-tokens-details", "--enable-sleep-mode"]
        rng = random.Random(1)
        prefix, other = ([rng.randrange(1000, 100000) for _ in range(args.tokens)] for _ in range(2))
        turn = [rng.randrange(1000, 100000) for _ in range(64)]
        with local_server.server(args.program, *words, env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
            first, _ = first_token_seconds(server.port, prefix)
            print("%d tokens computed: %.2f s" % (args.tokens, first), flush=True)
            first_token_seconds(server.port, other)  # evicts the prefix
            memory, cached = first_token_seconds(server.port, prefix + turn)
            print("second turn after eviction, from memory: %.2f s (%d tokens found), %.0f times faster" % (memory, cached, first / memory), flush=True)
        with local_server.server(args.program, *words, env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
            disk, cached = first_token_seconds(server.port, prefix + turn)
            print("second turn after a restart, from files: %.2f s (%d tokens found), %.0f times faster" % (disk, cached, first / disk), flush=True)
            before = resident_mib(server.pid)
            asleep = post(server.port, "/sleep?level=1")
            during = resident_mib(server.pid)
            awake = post(server.port, "/wake_up")
            print("warm start: %.2f s; asleep after %.2f s with %.0f of %.0f MiB (%.0f %%); awake after %.2f s (%.2f of a start)"
                  % (server.seconds, asleep, during, before, 100 * during / before, awake, awake / server.seconds), flush=True)


if __name__ == "__main__":
    main()
