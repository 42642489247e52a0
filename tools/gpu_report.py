#!/usr/bin/env python3
"""Proves and measures a device in under nine minutes, part by part, and prints one table.

Every part runs in a process of its own with a budget of seconds: one that crashes, or that has to be cut, takes nothing
of the others with it, and the device starts afresh. A part that finds no time left is not begun. Each part leaves a JSON
file in the output folder, and is not run again while that is there and whole (--again runs all). report.json and
table.txt hold everything that is known, after every part.

The program: SLUICE_BIN (a folder), else the folder of a distribution that this script lies in or --dist names, else
build/cuda/bin. Random weights, random prompts, one wave of requests as large as the concurrency: its beginning and its
end are in the figures, which a long run would show less of.
"""
import argparse
import ctypes
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
LIST_S = 30
# Where driver libraries are on machines whose loader is not told.
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current")

# Output tokens a second on one H200: what is aimed for, and what reading weights and cache at 4.3 TB/s and arithmetic at
# 1,400 TFLOP/s allow when prompts and answers take turns (docs/benchmarking.md).
LADDER = [
    # name, prompt tokens, answer tokens, concurrency, budget in seconds, target, bound
    ("ladder-1024-1", 1024, 1024, 1, 40, 50, 60),
    ("ladder-1024-8", 1024, 1024, 8, 40, 377, 453),
    ("ladder-1024-64", 1024, 1024, 64, 55, 2059, 2418),
    ("ladder-1024-256", 1024, 1024, 256, 110, 3942, 4517),
    ("ladder-8192-64", 8192, 1024, 64, 140, 575, 653),
]
# Room for the cache: 256 sequences of 2,048 tokens, and 64 of 9,216, do not fit one H200 whole (docs/cuda.md).
LADDER_OPTIONS = "--gpu-memory-utilization 0.96"
SHORT_LADDER = [
    ("ladder-16-1", 16, 6, 1, 40, None, None),
    ("ladder-16-2", 16, 6, 2, 40, None, None),
]
SHORT_SELFTEST = ["instructions", "memory", "draws"]
READY_TARGET_S = 20
NO_DEVICE = 3  # the exit code
STATUS_WIDTH = 120
# Of all parts of a command together, and of each.
SELFTEST_S, SELFTEST_PART_S = 110, 45
BENCH_S, BENCH_PART_S = 100, 30


def find_bin(dist):
    """The folder of the program."""
    places = [os.environ.get("SLUICE_BIN"), dist and os.path.join(dist, "bin"), ROOT / "bin", ROOT / "build" / "cuda" / "bin"]
    for place in places:
        if place and (pathlib.Path(place) / "sluice").exists():
            return pathlib.Path(place)
    sys.exit("no program: set SLUICE_BIN to the folder of sluice, name a distribution with --dist, or run make build-cuda")


LIBC = ctypes.CDLL(None)


def environment():
    """Of the programs that are run: the driver is found where it usually is, if the loader does not know it."""
    variables = dict(os.environ)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        found = [folder for folder in DRIVER_FOLDERS if os.path.exists(os.path.join(folder, "libcuda.so.1"))]
        if found:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(found + [variables[key] for key in ("LD_LIBRARY_PATH",) if variables.get(key)])
    return variables


def bind_to_parent():
    """Of a child, before its program: a group of its own, to be ended with all that it starts; and nothing keeps the device
    after a report that was killed."""
    os.setpgid(0, 0)
    PR_SET_PDEATHSIG = 1
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Stopped(Exception):
    """The report itself was told to end."""


class Report:
    def __init__(self, options):
        self.options = options
        self.bin = find_bin(options.dist)
        self.out = pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.begin = time.time()
        self.emulated = options.device == "emulated"
        self.environment = environment()
        self.children = []
        self.server = None
        self.num_servers = 0
        self.url = None
        self.parts = {}

    def left(self):
        return self.options.budget - (time.time() - self.begin)

    def log_path(self, name):
        return self.out / (name + ".log")

    def keep(self, name, result):
        unfinished = self.out / (name + ".json.partial")
        unfinished.write_text(json.dumps(result, indent=1) + "\n")
        unfinished.replace(self.out / (name + ".json"))

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
            except Stopped:
                self.parts[name] = {"status": "cut", "why": "the report was told to end", "seconds": round(time.time() - start, 2)}
                raise
            except Exception as error:  # whatever one part runs into, the others are still worth their time
                result = {"status": "failed", "why": "%s: %s" % (type(error).__name__, error)}
            result.setdefault("seconds", round(time.time() - start, 2))
            if result["status"] != "done":
                print("   %s: %s" % (result["status"], result.get("why", "")), flush=True)
        self.parts[name] = result
        self.keep(name, result)
        self.write()

    def begin_process(self, words, out):
        process = subprocess.Popen([str(word) for word in words], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=self.environment, preexec_fn=bind_to_parent)
        self.children.append(process)
        return process

    def end_process(self, process, first=signal.SIGTERM, seconds=STOP_S):
        """One that does not even end when it is killed, waiting in the driver, is left alone."""
        for number, patience in ((first, seconds), (signal.SIGKILL, 5)):
            if process.poll() is None:
                try:
                    os.killpg(process.pid, number)
                    process.wait(patience)
                except (OSError, subprocess.TimeoutExpired):
                    pass
        self.children.remove(process)

    def run(self, words, seconds, log):
        """Runs the program with its output kept: its exit code, or None where it was cut."""
        with open(self.log_path(log), "w") as out:
            process = self.begin_process([self.bin / words[0], *words[1:]], out)
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                self.end_process(process, signal.SIGINT, 5)

    def last_line(self, log):
        lines = [line for line in self.log_path(log).read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    # selftest and kernel-bench

    def listed(self, command):
        """The names of a command's parts."""
        code = self.run(["sluice", command, "--list"], LIST_S, command + "-list")
        lines = self.log_path(command + "-list").read_text(errors="replace").splitlines()
        if code != 0 or not lines:
            raise OSError("%s --list: %s" % (command, self.last_line(command + "-list") or "exit code %s" % code))
        return [line.split()[0] for line in lines if line.strip()]

    def rows_of(self, command, name, seconds):
        label = command + "-" + name
        path = self.out / (label + "-rows.json")
        path.unlink(missing_ok=True)
        code = self.run(["sluice", command, "--device", self.options.device, "--part", name, "--json", path], seconds, label)
        if code is None:
            return {"status": "cut", "why": "not done in %d s; %s" % (seconds, self.last_line(label))}
        if not path.exists():
            ended = "exit code %d" % code if code >= 0 else "ended by signal %d" % -code
            return {"status": "failed", "code": code, "why": "%s; %s" % (ended, self.last_line(label))}
        found = json.loads(path.read_text())
        result = {"status": "done" if code == 0 else "failed", "code": code, "device": found["device"], "rows": found["rows"]}
        if found["rows"] and not found.get("lost") and all(row.get("result") == "skipped" for row in found["rows"]):
            return dict(result, status="skipped", why=found["rows"][0]["message"])
        if code != 0:
            bad = [row for row in found["rows"] if row.get("result") == "fail" or row.get("message", "").startswith("failed")]
            result["why"] = "; ".join("%s, %s: %s" % (row.get("operator", row.get("kernel")), row["shape"], row["message"]) for row in bad[:3])
        return result

    def all_parts(self, command, names, budget, part_budget):
        """Runs a command part by part; what all of them say stands under the command's name."""
        begin = time.time()
        for done, name in enumerate(names, 1):
            label = command + "-" + name
            seconds = min(part_budget, max(1, begin + budget - time.time()))
            self.part(label, seconds, lambda seconds, n=name: self.rows_of(command, n, seconds))
            self.parts[command] = dict(self.summary(command, names[:done]), seconds=round(time.time() - begin, 2))
            self.write()
            if self.parts[label].get("code") == NO_DEVICE:
                break  # the others would say the same

    def summary(self, command, names):
        parts = [self.parts[command + "-" + name] for name in names]
        rows, seen = [], set()
        for part in parts:
            for row in part.get("rows", []):  # every run of kernel-bench measures the limits first
                key = (row["part"], row.get("operator", row.get("kernel")), row["shape"])
                if key not in seen or "result" in row:
                    rows.append(row)
                seen.add(key)
        bad = ["%s %s" % (name, part["status"]) for name, part in zip(names, parts) if part["status"] not in ("done", "skipped")]
        if parts[-1].get("code") == NO_DEVICE:
            bad = [parts[-1]["why"]]
        result = {"status": "done" if not bad else "failed", "device": next((part["device"] for part in parts if part.get("device")), None),
                  "rows": rows, **({"why": ", ".join(bad)} if bad else {})}
        for count, word in (("passed", "pass"), ("failed", "fail"), ("skipped", "skipped")):
            result[count] = sum(row.get("result") == word for row in rows)
        return result

    def try_all_parts(self, command, names, budget, part_budget):
        try:
            self.all_parts(command, names or self.listed(command), budget, self.options.part_budget or part_budget)
        except OSError as error:
            self.parts[command] = {"status": "failed", "why": str(error)}
            print("== %s: failed: %s" % (command, error), flush=True)

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
            found = re.search(r"serving .* at (http://\S+), ready in", self.log_path(self.server_log()).read_text(errors="replace"))
            if not found:
                return False
            self.url = found[1]
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=2) as reply:
                return reply.status == 200
        except OSError:
            return False

    def server_log(self):
        return "server" if self.num_servers < 2 else "server-%d" % self.num_servers

    def start_server(self, seconds):
        self.stop_server()
        ladder = self.ladder()
        longest = max(rung[1] + rung[2] for rung in ladder) + 64
        self.url = None
        self.num_servers += 1
        further = self.options.serve_options
        if further is None:
            further = "" if self.options.short else LADDER_OPTIONS
        words = [self.bin / "vllm", "serve", self.model_folder(), "--device", self.options.device, "--load-format", "dummy",
                 "--host", "127.0.0.1", "--port", 0, "--max-model-len", longest,
                 "--max-num-seqs", max(rung[3] for rung in ladder), *further.split()]
        start = time.time()
        with open(self.log_path(self.server_log()), "w") as out:
            self.server = self.begin_process(words, out)
        while time.time() - start < seconds:
            if self.server.poll() is not None:
                code = self.server.returncode
                self.stop_server()
                return {"status": "failed", "code": code, "why": "the server did not start: " + self.last_line(self.server_log())}
            if self.ready():
                return {"status": "done", "ready_seconds": round(time.time() - start, 2)}
            time.sleep(0.05)
        self.stop_server()
        return {"status": "cut", "why": "not ready in %d s; %s" % (seconds, self.last_line(self.server_log()))}

    def stop_server(self):
        if self.server is not None:
            self.end_process(self.server)
        self.server = None

    def counter(self, name):
        """Of the server's own."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=5) as reply:
            text = reply.read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("vllm:" + name))

    # the ladder

    def ladder(self):
        return SHORT_LADDER if self.options.short else LADDER

    def rung(self, name, prompt, answer, concurrency, seconds):
        if self.server is None or not self.ready():
            started = self.start_server(min(READY_S, self.left()))
            if started["status"] != "done":
                return started
        seconds = min(seconds, self.left())
        file = name + "-bench.json"
        (self.out / file).unlink(missing_ok=True)
        tokens_before, preempted_before, start = self.counter("generation_tokens_total"), self.counter("num_preemptions_total"), time.time()
        code = self.run(["vllm", "bench", "serve", "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--model",
                         self.model_folder(), "--trust-remote-code", "--dataset-name", "random", "--random-input-len", prompt,
                         "--random-output-len", answer, "--ignore-eos", "--max-concurrency", concurrency, "--num-prompts", concurrency,
                         "--ready-check-timeout-sec", "0", "--save-result", "--result-dir", self.out, "--result-filename", file],
                        seconds, name)
        elapsed = time.time() - start
        if self.server.poll() is not None:
            self.stop_server()
            return {"status": "failed", "why": "the server ended: " + self.last_line(self.server_log())}
        if code is None:
            tokens = self.counter("generation_tokens_total") - tokens_before
            return {"status": "cut", "output_tokens_per_second": round(tokens / elapsed, 2),
                    "why": "cut after %d s; by the server's counter, prompts included in the time" % elapsed}
        if code != 0 or not (self.out / file).exists():
            return {"status": "failed", "code": code, "why": self.last_line(name)}
        result = json.loads((self.out / file).read_text())
        keys = ("completed", "failed", "output_throughput", "total_token_throughput", "mean_ttft_ms", "median_tpot_ms", "duration")
        figures = {key: result[key] for key in keys if key in result}
        figures["preemptions"] = self.counter("num_preemptions_total") - preempted_before
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
            if part["status"] == "done":
                return "done, %d preemptions" % part["preemptions"] if part.get("preemptions") else "done"
            text = "%s%s" % (part["status"], ": " + part["why"] if part.get("why") else "")
            return text if len(text) <= STATUS_WIDTH else text[:STATUS_WIDTH - 3] + "..."

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

    def table_text(self):
        def text(value):
            return "" if value is None else str(value)

        rows = [("", "measured", "target", "bound", "")] + [tuple(map(text, line)) for line in self.table()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "".join("  ".join([row[0].ljust(widths[0])] + [row[i].rjust(widths[i]) for i in (1, 2, 3)] + [row[4]]).rstrip() + "\n"
                       for row in rows)

    def version(self):
        try:
            done = subprocess.run([str(self.bin / "sluice"), "version", "--json"], capture_output=True, text=True, timeout=LIST_S)
            return json.loads(done.stdout) if done.returncode == 0 else {}
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return {}

    def write(self):
        report = {"device": self.options.device, "short": self.options.short, "model": str(self.options.model or SHAPE),
                  "program": self.program, "seconds": round(time.time() - self.begin, 1), "parts": self.parts,
                  "table": [dict(zip(("what", "measured", "target", "bound", "status"), line)) for line in self.table()]}
        for name, text in (("report.json", json.dumps(report, indent=1) + "\n"), ("table.txt", self.table_text())):
            unfinished = self.out / (name + ".partial")
            unfinished.write_text(text)
            unfinished.replace(self.out / name)

    def run_parts(self):
        self.try_all_parts("selftest", SHORT_SELFTEST if self.options.short else None, SELFTEST_S, SELFTEST_PART_S)
        if self.emulated:
            self.parts["kernel-bench"] = {"status": "skipped", "why": "emulated"}
        else:
            self.try_all_parts("kernel-bench", None, BENCH_S, BENCH_PART_S)
        self.part("launch", READY_S, self.start_server)
        launched = self.parts["launch"]["status"] == "done"
        for name, prompt, answer, concurrency, budget, _, _ in self.ladder():
            if launched:
                self.part(name, budget, lambda seconds, r=(name, prompt, answer, concurrency): self.rung(*r, seconds))
            else:
                self.parts[name] = {"status": "failed", "why": "no server"}

    def all(self):
        self.program = self.version()
        try:
            self.run_parts()
        except Stopped:
            print("\ntold to end: what is missing is run by the next call", flush=True)
        finally:
            for child in list(self.children):
                self.end_process(child)
            self.write()
        print("\n%s\n%s after %.0f s; details in %s" % (self.table_text(), self.out / "report.json", time.time() - self.begin, self.out))
        states = {part["status"] for part in self.parts.values()}
        return 0 if states <= {"done", "skipped"} else 1


def stop(number, frame):
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # once is enough
    raise Stopped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--out", default="gpu-report", help="folder for the parts' files (default: gpu-report)")
    parser.add_argument("--dist", help="folder of an unpacked distribution")
    parser.add_argument("--model", help="serve this folder's shape instead of Llama 3.3 70B's")
    parser.add_argument("--short", action="store_true", help="few checks and tiny requests: tries the script itself")
    parser.add_argument("--again", action="store_true", help="run parts whose results are there")
    parser.add_argument("--budget", type=float, default=TOTAL_S, help="seconds in all (default: %d)" % TOTAL_S)
    parser.add_argument("--part-budget", type=float, help="seconds of each part of selftest (default: %d) and kernel-bench (%d)"
                        % (SELFTEST_PART_S, BENCH_PART_S))
    parser.add_argument("--serve-options", help="further options of the server, as one word (default: %s)" % LADDER_OPTIONS)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    sys.exit(Report(parser.parse_args()).all())


if __name__ == "__main__":
    main()
