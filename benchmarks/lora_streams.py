#!/usr/bin/env python3
"""Measures the cost of adapters: streams that decode together, without adapters, with one, and with a different one each.

    benchmarks/lora_streams.py adapters benchmarks/llama-3.2-1b-shape FOLDER --count 8 --rank 16
    sluice serve MODEL --load-format dummy --served-model-name m --enable-lora --max-loras 8 --lora-modules a0=FOLDER/a0 ...
    benchmarks/lora_streams.py measure PORT PID --count 8 --streams 32 --tokens 24 --rounds 4
    benchmarks/lora_streams.py start build/release/bin/sluice MODEL FOLDER --count 8 --rank 16

`adapters` writes random adapters for all linear layers of a model's config.json. MODEL is a folder with that config.json and any
tokenizer. `measure` runs the three kinds in turn, after a warm-up round. The processor time of process PID measures the work even if
other programs use the cores. `start` measures how much longer a start takes with the adapters; here MODEL needs weights.
"""
import argparse
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import threading
import time

from random_weights import BF16, linear_shapes, write_safetensors


def write_adapters(options):
    config = json.loads((options.model / "config.json").read_text())
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module, (rows, columns) in linear_shapes(config).items():
            name = "base_model.model.model.layers.%d.%s.lora_" % (layer, module)
            tensors[name + "A.weight"], tensors[name + "B.weight"] = (BF16, [options.rank, columns]), (BF16, [rows, options.rank])
    for number in range(options.count):
        folder = options.folder / ("a%d" % number)
        folder.mkdir(parents=True, exist_ok=True)
        write_safetensors(folder / "adapter_model.safetensors", tensors)
        (folder / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": options.rank, "lora_alpha": 2 * options.rank, "target_modules": "all-linear", "bias": "none"}))


def processor_seconds(pid):
    fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(port, model, stream, tokens):
    prompt = [(stream * 31 + k * 7) % 500 for k in range(16)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1800)
    connection.request("POST", "/v1/completions", json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    assert response.status == 200, answer


def measure(options):
    kinds = {"no adapter": ["m"], "one adapter": ["a0"], "%d adapters" % options.count: ["a%d" % i for i in range(options.count)]}
    seconds = {kind: [] for kind in kinds}
    for round_number in range(options.rounds + 1):
        for kind, models in kinds.items():
            wall, processor = time.monotonic(), processor_seconds(options.pid)
            threads = [threading.Thread(target=ask, args=(options.port, models[i % len(models)], i, options.tokens)) for i in range(options.streams)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if round_number > 0:
                seconds[kind].append((time.monotonic() - wall, processor_seconds(options.pid) - processor))
    base = seconds["no adapter"]
    for kind, taken in seconds.items():
        speeds = [statistics.median(b[i] / t[i] for b, t in zip(base, taken)) for i in range(2)]
        print("%-12s %6.2f s, %6.2f s of processors: %.2f and %.2f x the speed without" % (
            kind, *(statistics.median(t[i] for t in taken) for i in range(2)), *speeds))


def seconds_to_ready(options, words):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    command = [options.program, "serve", options.model, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while server.poll() is None:
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
                    connection.request("GET", "/ready")
                    if connection.getresponse().status == 200:
                        return time.monotonic() - began
                except OSError:
                    pass
                time.sleep(0.005)
        finally:
            server.terminate()
    raise SystemExit("the server ended before it was ready: %s" % " ".join(map(str, command)))


def measure_starts(options):
    adapters = ["a%d=%s" % (i, options.folder / ("a%d" % i)) for i in range(options.count)]
    words = ["--enable-lora", "--max-loras", str(options.count), "--max-lora-rank", str(options.rank), "--lora-modules", *adapters]
    without, beside = [], []
    for round_number in range(options.rounds + 1):
        pair = seconds_to_ready(options, []), seconds_to_ready(options, words)
        if round_number > 0:
            without.append(pair[0])
            beside.append(pair[1])
    print("ready after %.2f s, with %d adapters after %.2f s" % (statistics.median(without), options.count, statistics.median(beside)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    adapters = commands.add_parser("adapters")
    adapters.add_argument("model", type=pathlib.Path)
    adapters.add_argument("folder", type=pathlib.Path)
    adapters.add_argument("--rank", type=int, default=16)
    adapters.set_defaults(run=write_adapters)
    speed = commands.add_parser("measure")
    speed.add_argument("port", type=int)
    speed.add_argument("pid", type=int)
    speed.add_argument("--streams", type=int, default=32)
    speed.add_argument("--tokens", type=int, default=24)
    speed.add_argument("--rounds", type=int, default=4)
    speed.set_defaults(run=measure)
    start = commands.add_parser("start")
    start.add_argument("program", type=pathlib.Path)
    start.add_argument("model", type=pathlib.Path)
    start.add_argument("folder", type=pathlib.Path)
    start.add_argument("--rank", type=int, default=16)
    start.add_argument("--rounds", type=int, default=5)
    start.set_defaults(run=measure_starts)
    for command in (adapters, speed, start):
        command.add_argument("--count", type=int, default=8)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
