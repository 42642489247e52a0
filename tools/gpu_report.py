#!/usr/bin/env python3
"""Proves and measures a device in under nine minutes, part by part, and prints one table.

Every part has a budget of seconds. What does not end in it is cut and reported as cut; a part that finds no time left
is not begun. Each part leaves a JSON file in the output folder, and is not run again while that is there and whole
(--again runs all). At the end report.json holds everything.

The program: SLUICE_BIN (a folder), else the folder of a distribution that this script lies in or --dist names, else
build/cuda/bin. Random weights, random prompts, one wave of requests as large as the concurrency: its beginning and its
end are in the figures, which a long run would show less of.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = ROOT / "benchmarks" / "llama-3.3-70b-fp8-shape"
TOKENIZER = ROOT / "models" / "abacus"
TOTAL_S = 530
READY_S = 90
STOP_S = 20

# Output tokens a second on one H200: what is aimed for, and what reading weights and cache at 4.3 TB/s and arithmetic at
# 1,400 TFLOP/s allow when prompts and answers take turns (docs/benchmarking.md).
LADDER = [
    # name, prompt tokens, answer tokens, concurrency, budget in seconds, target, bound
    ("ladder-1024-1", 1024, 1024, 1, 45, 50, 60),
    ("ladder-1024-8", 1024, 1024, 8, 45, 377, 453),
    ("ladder-1024-64", 1024, 1024, 64, 60, 2059, 2418),
    ("ladder-1024-256", 1024, 1024, 256, 100, 3942, 4517),
    ("ladder-8192-64", 8192, 1024, 64, 130, 575, 653),
]
SHORT_LADDER = [
    ("ladder-16-1", 16, 6, 1, 40, None, None),
    ("ladder-16-2", 16, 6, 2, 40, None, None),
]
SHORT_SELFTEST = ["instructions", "memory", "logits"]
READY_TARGET_S = 20
SELFTEST_S, BENCH_S = 100, 80


def find_bin(dist):
    """The folder of the program."""
    places = [os.environ.get("SLUICE_BIN"), dist and os.path.join(dist, "bin"), ROOT / "bin", ROOT / "build" / "cuda" / "bin"]
    for place in places:
        if place and (pathlib.Path(place) / "sluice").exists():
            return pathlib.Path(place)
    sys.exit("no program: set SLUICE_BIN to the folder of sluice, name a distribution with --dist, or run make build-cuda")


class Report:
    def __init__(self, options):
        self.options = options
        self.bin = find_bin(options.dist)
        self.out = pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.begin = time.time()
        self.emulated = options.device == "emulated"
        self.server = None
        self.url = None
        self.parts = {}

    def left(self):
        return self.options.budget - (time.time() - self.begin)

    def log_path(self, name):
        return self.out / (name + ".log")

    def part(self, name, budget, body):
        """Runs a part unless its result is there; `body` gets the seconds it may take and returns a dictionary."""
        path = self.out / (name + ".json")
        if path.exists() and not self.options.again:
            try:
                found = json.loads(path.read_text())
                if found.get("status") == "done":
                    self.parts[name] = dict(found, reused=True)
                    print("== %s: there already (--again runs it anew)" % name, flush=True)
                    return
            except ValueError:
                pass  # cut short while it was written
        seconds = min(budget, self.left())
        if seconds < min(budget, 15):
            result = {"status": "cut", "why": "no time left of %d s" % self.options.budget}
        else:
            print("== %s (at most %d s)" % (name, seconds), flush=True)
            start = time.time()
            try:
                result = body(seconds)
            except OSError as error:
                result = {"status": "failed", "why": str(error)}
            result.setdefault("seconds", round(time.time() - start, 2))
        self.parts[name] = result
        unfinished = self.out / (name + ".json.partial")
        unfinished.write_text(json.dumps(result, indent=1) + "\n")
        unfinished.replace(path)

    def run(self, words, seconds, log):
        """Runs the program with its output shown and kept: (exit code, or None where it was cut)."""
        with open(self.log_path(log), "w") as out:
            process = subprocess.Popen([str(self.bin / words[0]), *words[1:]], stdout=out, stderr=subprocess.STDOUT)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                code = None
        return code

    def last_line(self, log):
        lines = [line for line in self.log_path(log).read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    # selftest and kernel-bench

    def selftest(self, seconds):
        path = self.out / "selftest-rows.json"
        words = ["sluice", "selftest", "--device", self.options.device, "--json", str(path)]
        if self.options.short:
            for part in SHORT_SELFTEST:
                words += ["--part", part]
        path.unlink(missing_ok=True)
        code = self.run(words, seconds, "selftest")
        if code is None:
            return {"status": "cut", "why": "not done in %d s; %s" % (seconds, self.last_line("selftest"))}
        if not path.exists():
            return {"status": "failed", "code": code, "why": self.last_line("selftest")}
        rows = json.loads(path.read_text())
        failed = ["%s, %s: %s" % (row["operator"], row["shape"], row["message"]) for row in rows["rows"] if row["result"] == "fail"]
        return {"status": "done" if code == 0 else "failed", "code": code, "passed": rows["passed"], "failed": rows["failed"],
                "skipped": rows["skipped"], "device": rows["device"], "failures": failed, "rows": rows["rows"]}

    def kernel_bench(self, seconds):
        if self.emulated:
            return {"status": "skipped", "why": "emulated"}
        path = self.out / "kernel-bench-rows.json"
        path.unlink(missing_ok=True)
        code = self.run(["sluice", "kernel-bench", "--device", self.options.device, "--json", str(path)], seconds, "kernel-bench")
        if code is None:
            return {"status": "cut", "why": "not done in %d s; %s" % (seconds, self.last_line("kernel-bench"))}
        if not path.exists():
            return {"status": "failed", "code": code, "why": self.last_line("kernel-bench")}
        rows = json.loads(path.read_text())
        return {"status": "done" if code == 0 else "failed", "code": code, "device": rows["device"], "rows": rows["rows"]}

    # the server

    def model_folder(self):
        """Llama 3.3 70B's configuration with a small tokenizer, or the model that was named."""
        if self.options.model:
            return pathlib.Path(self.options.model)
        folder = self.out / "model"
        folder.mkdir(exist_ok=True)
        shutil.copy(SHAPE / "config.json", folder / "config.json")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TOKENIZER / name, folder / name)
        return folder

    def ready(self):
        """The port is the system's choice, which the log tells."""
        if self.url is None:
            found = re.search(r"serving .* at (http://\S+), ready in", self.log_path("server").read_text(errors="replace"))
            if not found:
                return False
            self.url = found[1]
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=2) as reply:
                return reply.status == 200
        except OSError:
            return False

    def start_server(self, seconds):
        ladder = self.ladder()
        longest = max(rung[1] + rung[2] for rung in ladder) + 64
        self.url = None
        words = [str(self.bin / "vllm"), "serve", str(self.model_folder()), "--device", self.options.device, "--load-format", "dummy",
                 "--host", "127.0.0.1", "--port", "0", "--max-model-len", str(longest),
                 "--max-num-seqs", str(max(rung[3] for rung in ladder)), *self.options.serve_options.split()]
        start = time.time()
        with open(self.log_path("server"), "w") as out:
            self.server = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
        while time.time() - start < seconds:
            if self.server.poll() is not None:
                code, self.server = self.server.returncode, None
                return {"status": "failed", "code": code, "why": "the server did not start: " + self.last_line("server")}
            if self.ready():
                return {"status": "done", "ready_seconds": round(time.time() - start, 2)}
            time.sleep(0.05)
        self.stop_server()
        return {"status": "cut", "why": "not ready in %d s" % seconds}

    def stop_server(self):
        if self.server is None:
            return
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.server = None

    def generated_tokens(self):
        """By the server's own counter."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=5) as reply:
            text = reply.read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("vllm:generation_tokens_total"))

    # the ladder

    def ladder(self):
        return SHORT_LADDER if self.options.short else LADDER

    def rung(self, name, prompt, answer, concurrency, seconds):
        if self.server is None:
            started = self.start_server(min(READY_S, seconds))
            if started["status"] != "done":
                return started
            seconds = max(5, seconds - started["ready_seconds"])
        file = name + "-bench.json"
        (self.out / file).unlink(missing_ok=True)
        before, start = self.generated_tokens(), time.time()
        code = self.run(["vllm", "bench", "serve", "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--model",
                         str(self.model_folder()), "--trust-remote-code", "--dataset-name", "random", "--random-input-len", str(prompt),
                         "--random-output-len", str(answer), "--ignore-eos", "--max-concurrency", str(concurrency), "--num-prompts",
                         str(concurrency), "--save-result", "--result-dir", str(self.out), "--result-filename", file], seconds, name)
        elapsed = time.time() - start
        if self.server.poll() is not None:
            self.server = None
            return {"status": "failed", "why": "the server ended: " + self.last_line("server")}
        if code is None:
            tokens = self.generated_tokens() - before
            return {"status": "cut", "output_tokens_per_second": round(tokens / elapsed, 2),
                    "why": "cut after %d s; by the server's counter, prompts included in the time" % elapsed}
        if code != 0 or not (self.out / file).exists():
            return {"status": "failed", "code": code, "why": self.last_line(name)}
        result = json.loads((self.out / file).read_text())
        keys = ("completed", "failed", "output_throughput", "total_token_throughput", "mean_ttft_ms", "median_tpot_ms", "duration")
        figures = {key: result[key] for key in keys if key in result}
        whole = result["completed"] == concurrency
        return {"status": "done" if whole else "failed", "output_tokens_per_second": round(result["output_throughput"], 2), **figures,
                **({} if whole else {"why": "%d of %d requests failed" % (concurrency - result["completed"], concurrency)})}

    # the table

    def bench_rows(self, kernel_like, shape_like):
        rows = self.parts.get("kernel-bench", {}).get("rows", [])
        return [row for row in rows if re.search(kernel_like, row["kernel"]) and re.search(shape_like, row["shape"]) and row["achieved"] > 0]

    def share_of_limit(self, rows):
        """The smallest share of the measured limit, in percent."""
        shares = [100 * row["achieved"] / row["limit"] for row in rows if row.get("limit")]
        return min(shares) if shares else None

    def table(self):
        def state(name):
            part = self.parts.get(name, {"status": "not run"})
            return part["status"] if part["status"] == "done" else "%s%s" % (part["status"], ": " + part["why"] if part.get("why") else "")

        lines = []
        part = self.parts.get("selftest", {})
        lines.append(("selftest, rows passed", "%d of %d" % (part["passed"], part["passed"] + part["failed"]) if "passed" in part else None,
                      "all", "", state("selftest")))
        launch = self.parts.get("launch", {})
        lines.append(("launch to ready, s", launch.get("ready_seconds"), READY_TARGET_S if not self.options.short else None, "",
                      state("launch")))
        bench = state("kernel-bench")
        for label, kernel, shape, target in (
                ("skinny FP8 product, m <= 16, worst % of copy bandwidth", r"^(qkv|o|gate, up|down)$", r"^(1|8|16) x .*, fp8( x fp8)?$", 85),
                ("decode attention, FP8, worst % of copy bandwidth", r"^decode attention$", r"^(64|256) x .*fp8$", 80)):
            share = self.share_of_limit(self.bench_rows(kernel, shape))
            lines.append((label, share and round(share, 1), target if not self.options.short else None, None if self.emulated else 100,
                          bench))
        large = self.bench_rows(r"^(qkv|o|gate, up|down)$", r"^8192 x .*, fp8 x fp8$")
        best = max((row["achieved"] for row in large), default=None)
        peak = max((row["limit"] or 0 for row in large), default=None)
        lines.append(("FP8 product, m = 8192, best TFLOP/s", best and round(best, 1), 1300 if not self.options.short else None,
                      peak and round(peak, 1), bench))
        for name, prompt, answer, concurrency, _, target, bound in self.ladder():
            lines.append(("%d/%d tokens, %d at once: output tokens/s" % (prompt, answer, concurrency),
                          self.parts.get(name, {}).get("output_tokens_per_second"), target, bound, state(name)))
        return lines

    def print_table(self):
        def text(value):
            return "" if value is None else str(value)

        rows = [("", "measured", "target", "bound", "")] + [tuple(map(text, line)) for line in self.table()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        print()
        for row in rows:
            print("  ".join([row[0].ljust(widths[0])] + [row[i].rjust(widths[i]) for i in (1, 2, 3)] + [row[4]]).rstrip())

    def write(self):
        version = subprocess.run([str(self.bin / "sluice"), "version", "--json"], capture_output=True, text=True)
        report = {"device": self.options.device, "short": self.options.short, "model": str(self.model_folder()),
                  "program": json.loads(version.stdout) if version.returncode == 0 else {},
                  "seconds": round(time.time() - self.begin, 1), "parts": self.parts,
                  "table": [dict(zip(("what", "measured", "target", "bound", "status"), line)) for line in self.table()]}
        (self.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")

    def all(self):
        try:
            self.part("selftest", SELFTEST_S, self.selftest)
            self.part("kernel-bench", BENCH_S, self.kernel_bench)
            self.part("launch", READY_S, self.start_server)
            launched = self.parts["launch"]["status"] == "done"
            for name, prompt, answer, concurrency, budget, _, _ in self.ladder():
                if launched:
                    self.part(name, budget, lambda seconds, r=(name, prompt, answer, concurrency): self.rung(*r, seconds))
                else:
                    self.parts[name] = {"status": "failed", "why": "no server"}
        finally:
            self.stop_server()
        self.print_table()
        self.write()
        print("\n%s after %.0f s; details in %s" % (self.out / "report.json", time.time() - self.begin, self.out))
        states = {part["status"] for part in self.parts.values()}
        return 0 if states <= {"done", "skipped"} else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--out", default="gpu-report", help="folder for the parts' files (default: gpu-report)")
    parser.add_argument("--dist", help="folder of an unpacked distribution")
    parser.add_argument("--model", help="serve this folder's shape instead of Llama 3.3 70B's")
    parser.add_argument("--short", action="store_true", help="few checks and tiny requests: tries the script itself")
    parser.add_argument("--again", action="store_true", help="run parts whose results are there")
    parser.add_argument("--budget", type=float, default=TOTAL_S, help="seconds in all (default: %d)" % TOTAL_S)
    parser.add_argument("--serve-options", default="", help="further options of the server, as one word")
    sys.exit(Report(parser.parse_args()).all())


if __name__ == "__main__":
    main()
