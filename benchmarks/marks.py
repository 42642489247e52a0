#!/usr/bin/env python3
"""Measures the performance marks of the CPU engine that need no peer, one after another on one machine; prints a Markdown table.

    benchmarks/marks.py [ROW...] [--results FILE]      all rows, or those; needs an idle machine
    benchmarks/marks.py --list                         the rows

Exit status: 0 even if a mark is missed, 1 if a row could not be measured; the table says why. The programs are those of --build
(targets sluice, kernels_benchmark, server_benchmark). `quota` needs root, `start` 3 GB of disk under --folder, `speculation` memory for four servers.
"""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from contention import busy_loops, processor_quota
from local_server import NotStarted, request, server
from random_weights import FORMATS, write_checkpoint

ROOT = pathlib.Path(__file__).resolve().parents[1]
ABACUS = ROOT / "models" / "abacus"
TOKENIZER = ROOT / "tests" / "data" / "checkpoints" / "llama-bf16"
ROUNDS = 3


class NotMeasured(Exception):
    pass


@dataclasses.dataclass
class Line:
    work: str
    figure: str
    mark: str
    held: bool | None  # None: not measured
    values: dict = dataclasses.field(default_factory=dict)

    def text(self):
        return "| %s | %s | %s | %s |" % (self.work, self.figure, self.mark, {True: "yes", False: "no", None: "-"}[self.held])


def at_least(work, value, mark, form="%.2f", note="", **values):
    return Line(work, form % value + note, "at least " + form % mark, value >= mark, {"value": value, "mark": mark, **values})


def at_most(work, value, mark, form="%.2f", note="", **values):
    return Line(work, form % value + note, "at most " + form % mark, value <= mark, {"value": value, "mark": mark, **values})


def failed(work, reason):
    return Line(work, "not measured: " + " ".join(str(reason).replace("|", "/").split()), "", None)


def run(*command):
    """The standard output of a program."""
    command = list(map(str, command))
    if "/" in command[0] and not os.access(command[0], os.X_OK):
        raise NotMeasured("there is no %s: ninja -C %s %s" % (command[0], pathlib.Path(command[0]).parents[1], pathlib.Path(command[0]).name))
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if result.returncode != 0:
        raise NotMeasured("%s ended with %d: %s" % (" ".join(command[:3]), result.returncode, result.stderr.strip()[-300:]))
    return result.stdout


def latency(options, *words, launcher=()):
    """The results of `bench latency`, by name."""
    return json.loads(run(*launcher, options.sluice, "bench", "latency", options.shape, "--load-format", "dummy", "--threads", options.threads, "--json", *words))


def decode_rate(options, launcher=()):
    words = ("--batch-size", 8, "--input-len", 16, "--output-len", 24, "--num-iters", 1, "--no-limits")
    rate = latency(options, *words, launcher=launcher)["decode_tokens_per_second"]
    if rate <= 0:
        raise NotMeasured("the first stream ended before the last one began")
    return rate


def serve(options, model, *words):
    return server(options.sluice, model, "--threads", options.threads, *words)


def serve_shape(options, *words):
    return serve(options, options.shape, "--load-format", "dummy", "--tokenizer", TOKENIZER, "--max-model-len", 2048, *words)


def complete(port, prompt, tokens=1):
    status, text = request(port, "POST", "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
    if status != 200:
        raise NotMeasured("the server answered %d: %s" % (status, text.decode()[:300]))


def prefill_16k(options):
    """A prompt of 16,384 tokens, attention included, relative to the peak of the machine's BF16 products."""
    found = latency(options, "--batch-size", 1, "--input-len", 16384, "--output-len", 1, "--num-iters", 1)
    for unit, mark in (("amx", 50), ("avx512", 88)):
        peak = found.get("limit_%s_bf16_flops_per_second" % unit, 0)
        if peak > 0:
            rate = found["prefill_flops_per_second"]
            yield at_least("prefill of 16,384 tokens, share of the BF16 peak of %s" % {"amx": "AMX", "avx512": "AVX-512"}[unit], 100 * rate / peak, mark, "%.1f %%",
                           ", %.0f GFLOP/s" % (rate / 1e9), flops_per_second=rate, peak=peak)
            return
    raise NotMeasured("this machine has neither AMX nor BF16 products of AVX-512")


def attention(options):
    """Attention of one token over 32,000 others, and over 100 to 32,000 in one step, relative to the read bandwidth."""
    program = options.build / "bin" / "kernels_benchmark"
    names = run(program, "--benchmark_list_tests").split()
    listed = [name.split("/") for name in names if name.startswith("attention_decode_1x32000/")]
    if not listed:
        raise NotMeasured("%s has no attention_decode_1x32000" % program)
    best = listed[-1][1]
    found = {}
    for _ in range(ROUNDS):
        out = run(program, "--benchmark_filter=^attention(_f8)?_decode_(1x32000|mixed)/%s(/|$)" % best, "--benchmark_format=json")
        for case in json.loads(out)["benchmarks"]:
            found.setdefault(case["name"].split("/")[0], []).append(case)

    def median(name, counter):
        return statistics.median(case[counter] for case in found[name])

    for cache, kernel in (("BF16", "attention"), ("FP8", "attention_f8")):
        long, mixed = kernel + "_decode_1x32000", kernel + "_decode_mixed"
        yield at_least("attention over 32,000 tokens, %s, %s: share of the read bandwidth" % (cache, best), median(long, "of_limit"), 0.75,
                       note=", %.1f GB/s" % median(long, "GB/s"), gigabytes_per_second=[case["GB/s"] for case in found[long]])
        work = "attention over 100 to 32,000 tokens, %s: GB/s over those of 32,000" % cache
        if mixed in found:
            yield at_least(work, median(mixed, "GB/s") / median(long, "GB/s"), 0.9, gigabytes_per_second=[case["GB/s"] for case in found[mixed]])
        else:
            yield failed(work, "%s has no %s" % (program.name, mixed))


def narrow_formats(options):
    """Products of one to 512 rows with weights in each narrow format, relative to those with BF16 weights; blocks of FP8 to one scale a row."""
    program = options.build / "bin" / "kernels_benchmark"
    names = run(program, "--benchmark_list_tests").split()
    best = [name.split("/") for name in names if name.startswith("linear_2048x8192/M1/")][-1][2]
    rows = (1, 8, 32, 512)
    found = {}
    for _ in range(ROUNDS):
        out = run(program, "--benchmark_filter=^linear(_[a-z0-9_]+)?_2048x8192/M(1|8|32|512)/%s(/|$)" % best, "--benchmark_format=json")
        for case in json.loads(out)["benchmarks"]:
            found.setdefault(tuple(case["name"].split("/")[:2]), []).append(case["real_time"])
    times = {key: statistics.median(values) for key, values in found.items()}

    def ratio(form, to, m):
        return times["linear_%s_2048x8192" % form, "M%d" % m] / times["linear_%s2048x8192" % to, "M%d" % m]

    for form in ("fp8", "block_fp8", "int8", "w8a8", "nvfp4", "mxfp4"):
        ratios = {m: ratio(form, "", m) for m in rows}
        yield at_most("product with %s weights, %s: time over that of BF16, the worst of %s rows" % (form.replace("_", " "), best, ", ".join(map(str, rows))), max(ratios.values()), 1,
                      "%.2f x", "".join(", %.2f of %d" % (value, m) for m, value in ratios.items()), ratios=ratios)
    yield at_most("product with FP8 in blocks, %s, 512 rows: time over that of FP8" % best, ratio("block_fp8", "fp8_", 512), 1.05, "%.2f x")


def shared_prefix(options):
    """8 concurrent requests with a common prefix that is not cached, relative to computing the prefix before them."""
    together, first = [], []

    def prompts(number):
        # The prefixes of two different numbers begin differently.
        begin = [(number * 101 + k * 7) % 500 for k in range(1500)]
        return begin, [begin + [(3 + stream * 13 + k * 11) % 500 for k in range(32)] for stream in range(8)]

    words = ("--max-num-seqs", 16, "--kv-cache-memory-bytes", "1G")
    with serve_shape(options, *words) as one, serve_shape(options, *words) as other, concurrent.futures.ThreadPoolExecutor(8) as pool:
        for started in (one, other):
            complete(started.port, [499] * 40, 4)
        for number in range(1, ROUNDS + 1):
            begin, whole = prompts(number)
            start = time.monotonic()
            list(pool.map(lambda prompt: complete(one.port, prompt), whole))
            together.append(time.monotonic() - start)
            start = time.monotonic()
            complete(other.port, begin)
            list(pool.map(lambda prompt: complete(other.port, prompt), whole))
            first.append(time.monotonic() - start)
    yield at_most("8 requests at once with 1,500 tokens in common, over one of them first", statistics.median(a / b for a, b in zip(together, first)), 1.05,
                  "%.3f x", ", %.2f s" % statistics.median(together), together_seconds=together, first_seconds=first)


def speculation(options):
    """Answers with draft tokens relative to those without, for text that repeats itself and text that does not."""
    configs = {"ngram": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 5, "prompt_lookup_min": 2}, "suffix": {"method": "suffix"}}
    with tempfile.TemporaryDirectory() as draft, contextlib.ExitStack() as servers:
        # The weights of the draft model are also random, so the models never agree: this measures only the cost.
        small = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
        (pathlib.Path(draft) / "config.json").write_text(json.dumps({**json.loads((options.shape / "config.json").read_text()), **small}))
        configs["draft"] = {"method": "draft_model", "model": draft, "num_speculative_tokens": 4}
        words = ("--max-num-seqs", 4, "--kv-cache-memory-bytes", "256M")
        ports = {"plain": servers.enter_context(serve_shape(options, *words)).port}
        for name, config in configs.items():
            ports[name] = servers.enter_context(serve_shape(options, *words, "--speculative-config", json.dumps(config))).port
        out = run(sys.executable, ROOT / "benchmarks" / "speculation.py", "--tokens", 96, "--rounds", ROUNDS, *("%s=%d" % pair for pair in ports.items()))
    found = {(load, name): (float(ratio), float(rate)) for load, name, rate, ratio in
             re.findall(r"^(\w+) +(\w+) +([\d.]+) tokens/s, ([\d.]+) x plain", out, re.MULTILINE)}
    for load, mark in (("repeats", 1.5), ("draws", 0.97)):
        for name in configs:
            if (load, name) != ("repeats", "draft"):
                ratio, rate = found[load, name]
                yield at_least("tokens proposed by %s, text that %s: over plain" % (name, {"repeats": "repeats", "draws": "does not repeat"}[load]), ratio, mark, "%.2f x",
                               ", %.1f tokens/s" % rate, tokens_per_second=rate, plain_tokens_per_second=found[load, "plain"][1])


def shared_cores(options):
    """The speed of decoding while twice as many busy loops as cores run, relative to its fair share of the cores."""
    loops = 2 * options.cores
    share = min(1, options.cores / (options.threads + loops))
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(decode_rate(options))
        with busy_loops(loops):
            beside.append(decode_rate(options))
    yield at_least("decode of 8 streams beside %d busy loops, over its share of the cores" % loops, statistics.median(b / a for a, b in zip(alone, beside)) / share, 0.8,
                   note=", %.1f tokens/s beside, %.1f alone" % (statistics.median(beside), statistics.median(alone)), alone=alone, beside=beside, share=share)


def quota(options):
    """Decode under a quota of three quarters of the threads' processor time."""
    cpus = 0.75 * options.threads
    free, held = [], []
    with processor_quota(cpus) as launcher:
        for _ in range(ROUNDS):
            free.append(decode_rate(options))
            held.append(decode_rate(options, launcher))
    yield at_least("decode of 8 streams under a quota of %g CPUs, over 0.75 of that without" % cpus, statistics.median(b / a for a, b in zip(free, held)) / 0.75, 0.9,
                   note=", %.1f tokens/s under it, %.1f without" % (statistics.median(held), statistics.median(free)), free=free, held=held)


def host(options):
    """Time of a step of 256 sequences outside the forward pass."""
    found = latency(options, "--batch-size", 256, "--max-num-seqs", 256, "--input-len", 16, "--output-len", 9, "--num-iters", ROUNDS, "--no-limits")
    yield at_most("host's part of a step of 256 sequences", found["host_milliseconds_per_step"], 0.2, "%.3f ms")


def idle_streams(options):
    """Memory of 10,000 streams that wait for their next token."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        out = run(options.build / "bin" / "server_benchmark", "--benchmark_filter=HoldIdleStreams/10000/", "--benchmark_format=json")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    yield at_most("10,000 idle streams", json.loads(out)["benchmarks"][0]["MB"], 40, "%.0f MB")


def io_threads(pid):
    """The threads of an idle server that wait for sockets."""
    return [task for task in pathlib.Path("/proc/%d/task" % pid).iterdir() if re.search("epoll|ep_poll", (task / "wchan").read_text())]


def processor_seconds(tasks):
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def streams(options):
    """Fraction of a core that the input and output threads use at 5,000 tokens per second in 512 streams."""
    with serve(options, ABACUS, "--max-num-seqs", 512, "--max-model-len", 512, "--disable-uvicorn-access-log") as started, tempfile.TemporaryDirectory() as folder:
        def load(count):
            run(options.sluice, "bench", "serve", "--model", ABACUS, "--served-model-name", "m", "--port", started.port, "--dataset-name", "random", "--random-input-len", 16,
                "--random-output-len", 100, "--num-prompts", count, "--ignore-eos", "--save-result", "--result-dir", folder, "--result-filename", "result.json")
            return json.loads((pathlib.Path(folder) / "result.json").read_text())

        load(32)
        time.sleep(0.2)
        tasks = io_threads(started.pid)
        if not tasks:
            raise NotMeasured("no thread of the server is known to wait for sockets by /proc/PID/task/*/wchan")
        before = processor_seconds(tasks)
        found = load(512)
        seconds = processor_seconds(tasks) - before
    yield at_most("512 streams: a core's share for input and output at 5,000 tokens/s", 100 * 5000 * seconds / found["total_output_tokens"], 20, "%.1f %%",
                  ", measured at %.0f tokens/s" % found["output_throughput"], seconds=seconds, tokens=found["total_output_tokens"])


def start(options):
    """Time from start to ready with the weights in the page cache, by format of the weights."""
    shape = json.loads((options.shape / "config.json").read_text())
    folder = options.folder / "start"
    for form in FORMATS:
        extra = {}
        if form != "bf16":
            beside = json.loads((ROOT / "benchmarks" / ("llama-3.2-1b-%s-shape" % form) / "config.json").read_text())
            extra["quantization_config"] = beside["quantization_config"]
        seconds = []
        try:
            write_checkpoint(folder, {**shape, **extra}, form)
            os.sync()
            with open(folder / "model.safetensors", "rb", buffering=0) as file:
                size = sum(itertools.takewhile(bool, (len(file.read(1 << 24)) for _ in itertools.count())))
            for _ in range(ROUNDS):
                with serve(options, folder, "--tokenizer", TOKENIZER, "--max-model-len", 2048, "--kv-cache-memory-bytes", "256M") as started:
                    seconds.append(started.seconds)
            yield at_most("start to ready, %s, %.2f GB in the page cache" % (form.upper(), size / 1e9), statistics.median(seconds), 0.55, "%.2f s", seconds=seconds)
        except (OSError, NotStarted) as error:
            yield failed("start to ready, %s" % form.upper(), str(error)[-400:])
        finally:
            shutil.rmtree(folder, ignore_errors=True)


ROWS = {function.__name__.replace("_", "-"): function for function in (
    prefill_16k, attention, narrow_formats, shared_prefix, speculation, shared_cores, quota, host, idle_streams, streams, start)}


def measure(name, options):
    """The lines of a row; an error that ends it becomes the last line."""
    try:
        yield from ROWS[name](options)
    except (NotMeasured, NotStarted, OSError, KeyError, ValueError) as error:
        yield failed(name, str(error)[-400:] if isinstance(error, (NotMeasured, NotStarted, OSError)) else repr(error))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"^model name\s*: (.*)", file.read(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--shape", type=pathlib.Path, default=ROOT / "benchmarks" / "llama-3.2-1b-shape", help="folder of a Llama's config.json")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "marks", help="for checkpoints, one at a time")
    parser.add_argument("--threads", type=int, default=0, help="default: the program's own choice")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    options = parser.parse_args()
    if options.list:
        for name, function in ROWS.items():
            print("%-14s %s" % (name, function.__doc__))
        return 0
    if unknown := [name for name in options.rows if name not in ROWS]:
        parser.error("no row %s: the rows are %s" % (", ".join(unknown), ", ".join(ROWS)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # exit normally, so that started processes are ended
    options.build, options.shape, options.folder = (path.resolve() for path in (options.build, options.shape, options.folder))
    options.sluice, options.cores = options.build / "bin" / "sluice", len(os.sched_getaffinity(0))
    try:
        version = run(options.sluice, "--version").splitlines()[0]
        if not options.threads:
            options.threads = json.loads(run(options.sluice, "bench", "latency", ABACUS, "--json", "--no-limits", "--batch-size", 1, "--output-len", 1))["num_threads"]
    except NotMeasured as error:
        sys.exit(str(error))
    about = {"cpu": machine(), "cores": options.cores, "threads": options.threads, "date": str(datetime.date.today()), "program": version, "shape": options.shape.name}
    print("%(cpu)s, %(cores)d cores, %(threads)d threads, %(date)s; %(program)s; %(shape)s\n\n| work | figure | mark | held |\n|---|---|---|---|" % about, flush=True)
    lines = []
    for name in options.rows or ROWS:
        for line in measure(name, options):
            print(line.text(), flush=True)
            lines.append({"row": name, **dataclasses.asdict(line)})
            if options.results:
                options.results.write_text(json.dumps({**about, "lines": lines}, indent=1) + "\n")
    return int(any(line["held"] is None for line in lines))


if __name__ == "__main__":
    sys.exit(main())
