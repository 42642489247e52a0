#!/usr/bin/env python3
"""Tests and measures a device, part by part, and prints one table.

The parts are selftest, repeated under compute-sanitizer (memcheck, racecheck, synccheck); kernel-bench, repeated under ncu; and the load of
the recipes. All parts take less than nine minutes; with --run they are three runs of less than ten minutes each. If one of NVIDIA's tools
is not in PATH, the table says so, and its parts do not count as passed. With --device hip, for AMD GPUs, there is no sanitizer, and
rocprofv3 replaces ncu (VENDORS).

For a machine that is available for only 15 minutes, --run first and then --run second run the most important parts in 150 and 480 seconds.
The first runs selftest of the basic parts, one of them also under memcheck. The second runs kernel-bench of the parts that limit decoding,
and three loads, one of them again with CUDA graphs. With --archive, all files are also in one archive, which is complete after every part.

Every part runs in a separate process, with a time limit. A part that crashes or times out does not affect the others, since each process
opens the device again. A part does not start if no time is left. Each part writes a JSON file to the output folder. A part is skipped if
its file is complete and is for the same device and model (--again runs all parts). report.json and table.txt hold all results so far, and
are written after every part.

The program is in SLUICE_BIN (a folder), else in the distribution's folder that contains this script or that --dist names, else in
build/cuda/bin or, with --device hip, build/hip/bin. Loads use random weights and random prompts. With concurrency 1 and 8, a load is a
single wave of requests. With more, a new request follows each finished one. The result is then the server's token count over 30 seconds,
which begin once the number of finished answers equals the concurrency.
"""
import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = ROOT / "benchmarks" / "llama-3.3-70b-fp8-shape"
TOKENIZER = ROOT / "models" / "abacus"
TOTAL_S = 530
READY_S = 90
STOP_S = 20
LIST_S = 30
# The runs `first` and `second`: seconds in total, and parts. A load is given as the concurrency of the load with 1,024 prompt
# tokens.
FIRST_S, SECOND_S = 150, 480
FIRST_PARTS = ["instructions", "memory", "linear", "attention", "library"]
FIRST_SANITIZED = ["linear"]
SECOND_PARTS = ["limits", "skinny", "decode"]
SECOND_RUNGS = ["ladder-1024-64", "ladder-1024-1", "ladder-1024-256"]
SECOND_GRAPHS = "ladder-1024-64"
GRAPHS_SUFFIX, GRAPHS_OPTION = "-graphs", "--cuda-graphs"
# Output tokens per second on one H200: the target, and the upper bound. The bound assumes that weights and cache are
# read at 4.3 TB/s, that arithmetic runs at 1,400 TFLOP/s, and that prefills and decodes take turns
# (docs/benchmarking.md).
LADDER = [
    # name, prompt tokens, answer tokens, concurrency, seconds of its window (None: one wave), budget in seconds, target, bound
    ("ladder-1024-1", 1024, 128, 1, None, 20, 50, 60),
    ("ladder-1024-8", 1024, 128, 8, None, 20, 377, 453),
    ("ladder-1024-64", 1024, 1024, 64, 30, 85, 2059, 2418),
    ("ladder-1024-256", 1024, 1024, 256, 30, 130, 3942, 4517),
    ("ladder-8192-64", 8192, 1024, 64, 30, 160, 575, 653),
]
# In loads with a window, lengths vary by this fraction in both directions, so that prefills and decodes mix. Number of
# requests, per unit of concurrency.
LENGTH_RANGE = 0.5
REQUESTS_PER_PLACE = 16
# Makes the KV cache larger: one H200 has too little memory for all 256 sequences of 2,048 tokens, or 64 of 9,216
# (docs/cuda.md).
LADDER_OPTIONS = "--gpu-memory-utilization 0.96"
SHORT_LADDER = [
    ("ladder-16-1", 16, 6, 1, None, 40, None, None),
    ("ladder-16-2", 16, 6, 2, 0.2, 40, None, None),
]
SHORT_SELFTEST = ["instructions", "memory", "draws"]
READY_TARGET_S = 20
NO_DEVICE = 3  # exit code of the program if there is no device
STATUS_WIDTH = 120
# Time limits in seconds: for all parts of a command together, and for each.
SELFTEST_S, SELFTEST_PART_S = 110, 45
BENCH_S, BENCH_PART_S = 100, 30
# For --run with only one kind of parts.
RUN_S = 570
SANITIZERS = ["memcheck", "racecheck", "synccheck"]
SANITIZED_S = 60
PROFILED_S = 60
PROFILED_KERNELS = "Linear|Attention|RmsNorm|SiluMul"
PROFILED_LAUNCHES = 6
# Settings of each vendor. "driver": the driver's library, and its folders if the loader does not find it (the program finds
# HIP's without them). Then the library of large products as named in the program's log, the checking tools, the profiler and
# its command, the command that logs clocks, targets for FP8 products in TFLOP/s, and targets and bounds of loads (None: those
# of LADDER). For an MI355X only one target is known: the figure that recipe 003 prints for its load.
VENDORS = {
    "cuda": {"driver": "libcuda.so.1", "folders": ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current"),
             "library": "cuBLASLt", "sanitizers": SANITIZERS, "profiler": "ncu",
             "profile": ["ncu", "--set", "basic", "-k", "regex:" + PROFILED_KERNELS, "-c", str(PROFILED_LAUNCHES), "-f", "-o", "OUT"],
             "fp8_teraflops": 1300, "rungs": None,
             "clocks": ["nvidia-smi", "--query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active",
                        "--format=csv", "-l", "1"]},
    "hip": {"driver": None, "folders": (), "library": "hipBLASLt", "fp8_teraflops": None, "rungs": {"ladder-8192-64": (874, None)}, "sanitizers": [], "profiler": "rocprofv3",
            "profile": ["rocprofv3", "--kernel-trace", "--stats", "--kernel-include-regex", PROFILED_KERNELS, "-o", "OUT", "--"],
            "clocks": ["amd-smi", "metric", "--clock", "--power", "--temperature", "--csv", "-w", "1"]},
}
# The fake HIP runtime, which emulates GPUs (docs/hip.md).
STAND_IN = "libfake_hip.so"
# A part does not start with less time left, in seconds.
LEAST_S = 15
# Minimum free space on the output folder's disk: logs and rows take a few MiB.
LEAST_FREE_MIB = 16

LIBC = ctypes.CDLL(None)
# For requests to the server; ignores proxies of the environment.
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def say(text):
    """Prints a progress line; the report continues if nobody reads it."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def find_bin(dist, build):
    """The folder of the program. If a folder is named, looks only there. Exits if there is no program."""
    named = os.environ.get("SLUICE_BIN") or (dist and os.path.join(dist, "bin"))
    for place in [named] if named else [ROOT / "bin", ROOT / "build" / build / "bin"]:
        if os.path.exists(os.path.join(place, "sluice")):
            return pathlib.Path(place).resolve()
    sys.exit("no program%s: set SLUICE_BIN to the folder of sluice, name a distribution with --dist, or run make build-%s"
             % (" in %s" % named if named else "", build))


def make_out(name):
    """The output folder, if it is writable."""
    out = pathlib.Path(name)
    try:
        out.mkdir(parents=True, exist_ok=True)
        out = out.resolve()
        probe = out / "probe.partial"
        probe.write_text("a report can be kept here\n")
        probe.unlink()
        free = shutil.disk_usage(out).free >> 20
    except OSError as error:
        sys.exit("--out %s: a folder that can be written was expected: %s; name another one" % (name, error))
    if free < LEAST_FREE_MIB:
        sys.exit("--out %s: %d MiB of its disk are free, %d are needed; name another folder" % (name, free, LEAST_FREE_MIB))
    return out


def environment(vendor):
    """The environment of the programs: adds the driver's usual folders if the loader does not find it."""
    variables = dict(os.environ)
    if vendor["driver"] is None:
        return variables
    try:
        ctypes.CDLL(vendor["driver"])
    except OSError:
        found = [folder for folder in vendor["folders"] if os.path.exists(os.path.join(folder, vendor["driver"]))]
        if found:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(found + [variables[key] for key in ("LD_LIBRARY_PATH",) if variables.get(key)])
    return variables


def bind_to_parent():
    """Runs in a child process before its program. Makes a process group, so that all its processes can be ended together, and ends the
    child if the report is killed: no process may keep the device."""
    os.setpgid(0, 0)
    PR_SET_PDEATHSIG = 1
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Stopped(Exception):
    """The report received a signal to stop."""


class Report:
    def __init__(self, options):
        self.options = options
        self.vendor = VENDORS["hip" if options.device == "hip" else "cuda"]
        self.bin = find_bin(options.dist, "hip" if options.device == "hip" else "cuda")
        self.out = make_out(options.out)
        self.begin = time.monotonic()
        self.emulated = options.device == "emulated" or (options.device == "hip" and os.path.basename(os.environ.get("SLUICE_HIP_RUNTIME", "")) == STAND_IN)
        self.environment = environment(self.vendor)
        self.children = []
        self.server = None
        self.num_servers = 0
        self.url = None
        self.program = {}
        self.unsaved = None
        self.graphs = False  # whether the server captures CUDA graphs
        self.archive = options.archive and pathlib.Path(options.archive).resolve()
        self.parts = {} if options.again else self.found_parts()

    def left(self):
        return self.options.budget - (time.monotonic() - self.begin)

    def log_path(self, name):
        return self.out / (name + ".log")

    def save(self, name, text):
        """Writes a file to the output folder atomically. If the disk is full, the table still has the result."""
        unfinished = self.out / (name + ".partial")
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(self.out / name)
        except OSError as error:
            if self.unsaved is None:
                say("   %s cannot be written: %s" % (name, error))
            self.unsaved = str(error)
            with contextlib.suppress(OSError):
                unfinished.unlink()

    def serve_options(self, graphs=None):
        named = self.options.serve_options
        words = named if named is not None else "" if self.options.short else LADDER_OPTIONS
        return " ".join([words, GRAPHS_OPTION]).strip() if (self.graphs if graphs is None else graphs) else words

    def setting(self, name):
        """The settings that a part's result depends on: if they change, the part is run again."""
        of = {"device": self.options.device}
        if not name.startswith(("selftest-", "kernel-bench-")):
            model = self.options.model and str(pathlib.Path(self.options.model).resolve())
            of.update(model=model or SHAPE.name, serve_options=self.serve_options(name.endswith(GRAPHS_SUFFIX)))
        return of

    def found_parts(self):
        """Results of earlier calls; the summary of a command's parts is stored under the command's name."""
        parts = {}
        for path in sorted(self.out.glob("*.json")):
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(found, dict) and found.get("status") == "done" and found.get("of") == self.setting(path.stem):
                parts[path.stem] = dict(found, reused=True)
        for command in ("selftest", "kernel-bench"):
            tools = tuple("%s-%s" % (command, tool) for tool in [*self.vendor["sanitizers"], self.vendor["profiler"]])
            of_command = [part for name, part in parts.items() if name.startswith(command + "-") and not name.startswith(tools)]
            if of_command:
                parts[command] = self.summary(dict(zip(map(str, range(len(of_command))), of_command)))
        return parts

    def part(self, name, budget, body, end=None):
        """Runs a part unless its result exists. `body` receives its time limit in seconds and returns a dictionary. `end`: the time at
        which a group of parts must be done."""
        if self.parts.get(name, {}).get("reused"):
            say("== %s: there already (--again runs it anew)" % name)
            return
        seconds = min(budget, self.left(), float("inf") if end is None else end - time.monotonic())
        if seconds < min(budget, LEAST_S):
            whose = "%d s" % self.options.budget if self.left() < LEAST_S else "what its command's parts may take together"
            result = {"status": "cut", "why": "no time left of " + whose}
        else:
            say("== %s (at most %d s)" % (name, seconds))
            start = time.monotonic()
            try:
                result = body(seconds)
            except Stopped:
                self.parts[name] = {"status": "cut", "why": "the report was told to end", "seconds": round(time.monotonic() - start, 2)}
                raise
            except Exception as error:  # an exception in one part must not stop the others
                result = {"status": "failed", "why": "%s: %s" % (type(error).__name__, error)}
            result.setdefault("seconds", round(time.monotonic() - start, 2))
            if result["status"] != "done":
                say("   %s: %s" % (result["status"], result.get("why", "")))
        self.parts[name] = dict(result, of=self.setting(name))
        self.save(name + ".json", json.dumps(self.parts[name], indent=1) + "\n")
        self.write()

    def begin_process(self, words, out):
        process = subprocess.Popen([str(word) for word in words], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=self.environment, preexec_fn=bind_to_parent)
        self.children.append(process)
        return process

    def end_process(self, process, first=signal.SIGTERM, seconds=STOP_S):
        """Ends a process and its group. If a process survives SIGKILL because it waits in the driver, stops waiting for it."""
        for number, patience in ((first, seconds), (signal.SIGKILL, 5)):
            if process.poll() is None:
                try:
                    os.killpg(process.pid, number)
                    process.wait(patience)
                except (OSError, subprocess.TimeoutExpired):
                    pass
        self.children.remove(process)

    def run(self, words, seconds, log, under=()):
        """Runs the program, or the tool `under` with the program as its last arguments, and keeps the output. Returns the exit code, or
        None on a timeout."""
        with open(self.log_path(log), "w") as out:
            process = self.begin_process([*under, self.bin / words[0], *words[1:]], out)
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
        """Names of a command's parts."""
        code = self.run(["sluice", command, "--list"], LIST_S, command + "-list")
        lines = self.log_path(command + "-list").read_text(errors="replace").splitlines()
        if code != 0 or not lines:
            raise OSError("%s --list: %s" % (command, self.last_line(command + "-list") or "exit code %s" % code))
        return [line.split()[0] for line in lines if line.strip()]

    def rows_of(self, command, name, seconds, tool=None, under=(), more=()):
        """Runs a part of a command. `tool`: the name of the program `under`, if any."""
        label = "-".join([command, *([tool] if tool else []), name])
        path = self.out / (label + "-rows.json")
        path.unlink(missing_ok=True)
        words = ["sluice", command, "--device", self.options.device, "--part", name, "--json", path, *more]
        code = self.run(words, seconds, label, under)
        found = {}  # after a timeout, the file has the rows written so far
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
        rows = found.get("rows", [])
        result = {"status": "done" if code == 0 else "failed", "code": code, "device": found.get("device"), "rows": rows}
        if code is None:
            return dict(result, status="cut", why="not done in %d s; %s" % (seconds, self.last_line(label)))
        if not found or not found.get("complete", True):
            ended = "exit code %d" % code if code >= 0 else "ended by signal %d" % -code
            return dict(result, status="failed", why="%s; %s" % (ended, self.last_line(label)))
        if rows and not found.get("lost") and all(row.get("result") == "skipped" for row in rows):
            # On a device, products are slower without the vendor's library: report it as missing, not as skipped.
            status = "skipped" if self.emulated or name != "library" else "missing"
            return dict(result, status=status, why=rows[0]["message"])
        if code != 0:
            bad = [row for row in rows if row.get("result") == "fail" or row.get("message", "").startswith("failed")]
            result["why"] = "; ".join("%s, %s: %s" % (row.get("operator", row.get("kernel")), row["shape"], row["message"])
                                      for row in bad[:3]) or "exit code %d; %s" % (code, self.last_line(label))
        return result

    def all_parts(self, command, names, budget, part_budget):
        """Runs a command part by part; stores the summary under the command's name."""
        begin = time.monotonic()
        for name in names:
            label = command + "-" + name
            self.part(label, part_budget, lambda seconds, n=name: self.rows_of(command, n, seconds), begin + budget)
            known = {n: self.parts[command + "-" + n] for n in names if command + "-" + n in self.parts}
            self.parts[command] = dict(self.summary(known), seconds=round(time.monotonic() - begin, 2))
            self.write()
            if self.parts[label].get("code") == NO_DEVICE:
                break  # the other parts would fail for the same reason

    def summary(self, parts):
        """Summarizes a command's parts, given by name."""
        rows, seen = [], set()
        for part in parts.values():
            for row in part.get("rows", []):  # every run of kernel-bench measures the limits first
                key = (row["part"], row.get("operator", row.get("kernel")), row["shape"])
                if key not in seen or "result" in row:
                    rows.append(row)
                seen.add(key)
        bad = ["%s %s" % (name, part["status"]) for name, part in parts.items() if part["status"] not in ("done", "skipped")]
        bad = [part["why"] for part in parts.values() if part.get("code") == NO_DEVICE] or bad
        result = {"status": "done" if not bad else "failed",
                  "device": next((part["device"] for part in parts.values() if part.get("device")), None),
                  "rows": rows, **({"why": ", ".join(bad)} if bad else {})}
        for count, word in (("passed", "pass"), ("failed", "fail"), ("skipped", "skipped")):
            result[count] = sum(row.get("result") == word for row in rows)
        return result

    def under_tool(self, command, tool, names, budget, under, more=()):
        """Runs parts of a command again under a tool of the vendor."""
        if shutil.which(under[0], path=self.environment.get("PATH")) is None:
            self.parts["%s-%s" % (command, tool)] = {"status": "missing", "why": "%s is not in PATH" % under[0]}
            return
        for name in names:
            place = str(self.out / ("%s-%s" % (tool, name)))
            words = [word.replace("OUT", place) for word in under]
            self.part("-".join([command, tool, name]), budget,
                      lambda seconds, n=name, w=words: self.rows_of(command, n, seconds, tool, w, more))

    def names_of(self, command, few=None):
        """The names from listed(); empty if listed() fails. try_all_parts reports the failure."""
        try:
            return few or self.listed(command)
        except OSError:
            return []

    def try_all_parts(self, command, names, budget, part_budget):
        try:
            self.all_parts(command, names or self.listed(command), budget, self.options.part_budget or part_budget)
        except OSError as error:
            self.parts[command] = {"status": "failed", "why": str(error)}
            say("== %s: failed: %s" % (command, error))

    # the server

    def model_folder(self):
        """The named model, or Llama 3.3 70B's configuration with a small tokenizer."""
        if self.options.model:
            return pathlib.Path(self.options.model).resolve()
        folder = self.out / "model"
        folder.mkdir(exist_ok=True)
        shutil.copy(SHAPE / "config.json", folder / "config.json")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TOKENIZER / name, folder / name)
        return folder

    def ready(self):
        """Whether the server is ready; reads its port, which the system chose, from the log."""
        if self.url is None:
            found = re.search(r"serving .* at (http://\S+), ready in", self.log_path(self.server_log()).read_text(errors="replace"))
            if not found:
                return False
            self.url = found[1]
        try:
            with DIRECTLY.open(self.url + "/health", timeout=2) as reply:
                return reply.status == 200
        except OSError:
            return False

    def server_log(self):
        return "server" if self.num_servers < 2 else "server-%d" % self.num_servers

    def start_server(self, seconds):
        self.stop_server()
        ladder = self.ladder()
        longest = int(max((rung[1] + rung[2]) * (1 + LENGTH_RANGE * bool(rung[4])) for rung in ladder)) + 64
        self.url = None
        self.num_servers += 1
        words = [self.bin / "sluice", "serve", self.model_folder(), "--device", self.options.device, "--load-format", "dummy",
                 "--host", "127.0.0.1", "--port", 0, "--max-model-len", longest,
                 "--max-num-seqs", max(rung[3] for rung in ladder), *shlex.split(self.serve_options())]
        start = time.monotonic()
        with open(self.log_path(self.server_log()), "w") as out:
            self.server = self.begin_process(words, out)
        while time.monotonic() - start < seconds:
            if self.server.poll() is not None:
                code = self.server.returncode
                self.stop_server()
                return {"status": "failed", "code": code, "why": "the server did not start: " + self.last_line(self.server_log())}
            if self.ready():
                return {"status": "done", "ready_seconds": round(time.monotonic() - start, 2)}
            time.sleep(0.05)
        self.stop_server()
        return {"status": "cut", "why": "not ready in %d s; %s" % (seconds, self.last_line(self.server_log()))}

    def stop_server(self):
        if self.server is not None:
            self.end_process(self.server)
        self.server = None

    def counter(self, name):
        """The value of one of the server's counters."""
        with DIRECTLY.open(self.url + "/metrics", timeout=5) as reply:
            text = reply.read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("vllm:" + name))

    # the ladder

    def ladder(self):
        if self.options.short:
            return SHORT_LADDER
        if self.options.run == "second":
            return [next(rung for rung in LADDER if rung[0] == name) for name in SECOND_RUNGS]
        return LADDER

    def load_words(self, name, prompt, answer, concurrency, window):
        requests = concurrency if window is None else concurrency * REQUESTS_PER_PLACE
        return ["sluice", "bench", "serve", "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--model",
                self.model_folder(), "--trust-remote-code", "--dataset-name", "random", "--random-input-len", prompt,
                "--random-output-len", answer, "--random-range-ratio", LENGTH_RANGE if window else 0, "--ignore-eos",
                "--max-concurrency", concurrency, "--num-prompts", requests, "--ready-check-timeout-sec", "0",
                "--save-result", "--result-dir", self.out, "--result-filename", name + "-bench.json"]

    def in_window(self, name, prompt, answer, concurrency, window, seconds):
        """Throughput under a steady load: the tokens that the server counts in a window of seconds."""
        begin, finished = time.monotonic(), self.counter("request_success_total")
        preempted = self.counter("num_preemptions_total")
        words = self.load_words(name, prompt, answer, concurrency, window)
        with open(self.log_path(name), "w") as out:
            load = self.begin_process([self.bin / words[0], *words[1:]], out)
        try:
            while self.counter("request_success_total") - finished < concurrency:
                if load.poll() is not None:
                    return {"status": "failed", "code": load.returncode,
                            "why": "the load ended before its window: %s" % self.last_line(name)}
                if time.monotonic() - begin + window > seconds:
                    return {"status": "cut", "why": "no steady load in %d s" % (time.monotonic() - begin)}
                time.sleep(0.02 if self.options.short else 0.25)
            before, start = self.counter("generation_tokens_total"), time.monotonic()
            tokens, elapsed = 0, window
            while tokens == 0 and time.monotonic() - begin + window <= seconds:  # a window without tokens gives no rate
                time.sleep(window)
                tokens, elapsed = self.counter("generation_tokens_total") - before, time.monotonic() - start
            running = self.counter("num_requests_running")
        finally:
            self.end_process(load, signal.SIGINT, 5)
        result = {"output_tokens_per_second": round(tokens / elapsed, 2), "window_seconds": round(elapsed, 2), "running": running,
                  "preemptions": self.counter("num_preemptions_total") - preempted}
        return dict(result, status="done") if tokens > 0 else dict(result, status="failed", why="no token in %.0f s" % elapsed)

    def rung(self, name, prompt, answer, concurrency, window, seconds):
        if self.server is None or not self.ready():
            started = self.start_server(min(self.options.ready_budget, self.left()))
            if started["status"] != "done":
                return started
        seconds = min(seconds, self.left())
        file = name + "-bench.json"
        (self.out / file).unlink(missing_ok=True)
        if window is not None:
            return self.in_window(name, prompt, answer, concurrency, window, seconds)
        tokens_before, preempted_before, start = self.counter("generation_tokens_total"), self.counter("num_preemptions_total"), time.monotonic()
        code = self.run(self.load_words(name, prompt, answer, concurrency, None), seconds, name)
        elapsed = time.monotonic() - start
        if self.server.poll() is not None:
            self.stop_server()
            return {"status": "failed", "why": "the server ended: " + self.last_line(self.server_log())}
        if code is None:
            result = {"status": "cut", "why": "cut after %d s" % elapsed}
            with contextlib.suppress(OSError):  # the server does not answer
                tokens = self.counter("generation_tokens_total") - tokens_before
                result.update(output_tokens_per_second=round(tokens / elapsed, 2),
                              why=result["why"] + "; by the server's counter, prompts included in the time")
            return result
        if code != 0 or not (self.out / file).exists():
            return {"status": "failed", "code": code, "why": "exit code %d; %s" % (code, self.last_line(name))}
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
        return [row for row in rows if re.search(kernel_like, row["kernel"]) and re.search(shape_like, row["shape"]) and (row["achieved"] or 0) > 0]

    def share_of_limit(self, rows):
        """The smallest percentage of the measured limit."""
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
        counts = None
        if "passed" in part:
            counts = "%d of %d" % (part["passed"], part["passed"] + part["failed"] + part["skipped"])
        lines.append(("selftest, rows passed", counts, "all", "", state("selftest")))
        for tool in self.vendor["sanitizers"]:
            names = [name for name in self.parts if name.startswith("selftest-" + tool)]
            if names:
                worst = next((name for name in names if self.parts[name]["status"] != "done"), names[0])
                good = sum(self.parts[name]["status"] == "done" for name in names)
                lines.append(("selftest under %s, parts without a fault" % tool, "%d of %d" % (good, len(names)), "all", "", state(worst)))
        if self.needs_library():
            library = self.library()
            lines.append((self.vendor["library"], library, "", "", "found" if library else "missing: no part's log names it"))
        launch = self.parts.get("launch", {})
        lines.append(("launch to ready, s", launch.get("ready_seconds"), READY_TARGET_S if not self.options.short else None, "",
                      state("launch")))
        bench = state("kernel-bench")
        for label, kernel, shape, target in (
                ("skinny FP8 product, m <= 16, worst % of copy bandwidth", r"^(qkv|o|gate, up|down)$", r"^(1|8|16) x .*, fp8( x fp8)?(, by .*)?$", 85),
                ("decode attention, FP8, worst % of copy bandwidth", r"^decode attention$", r"^(64|256) x .*fp8$", 80)):
            share = self.share_of_limit(self.bench_rows(kernel, shape))
            lines.append((label, share and round(share, 1), target if not self.options.short else None, None if self.emulated else 100,
                          bench))
        large = self.bench_rows(r"^(qkv|o|gate, up|down)$", r"^8192 x .*, fp8 x fp8(, by .*)?$")
        best = max((row["achieved"] for row in large), default=None)
        peak = max((row["limit"] or 0 for row in large), default=None)
        lines.append(("FP8 product, m = 8192, best TFLOP/s", best and round(best, 1), self.vendor["fp8_teraflops"] if not self.options.short else None,
                      peak and round(peak, 1), bench))
        for name, prompt, answer, concurrency, _, _, target, bound in self.ladder():
            if self.vendor["rungs"] is not None:
                target, bound = self.vendor["rungs"].get(name, (None, None))
            lines.append(("%d/%d tokens, %d at once: output tokens/s" % (prompt, answer, concurrency),
                          self.parts.get(name, {}).get("output_tokens_per_second"), target, bound, state(name)))
            if name + GRAPHS_SUFFIX in self.parts:
                lines.append(("the same with CUDA graphs", self.parts[name + GRAPHS_SUFFIX].get("output_tokens_per_second"), target, bound,
                              state(name + GRAPHS_SUFFIX)))
        return lines

    def needs_library(self):
        return not self.emulated

    def library(self):
        """The version of the vendor's library, from the programs' logs."""
        for path in sorted(self.out.glob("*.log")):
            found = re.search(self.vendor["library"] + r" (\d+\.\d+\.\d+)", path.read_text(errors="replace"))
            if found:
                return found[1]
        return None

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
                  "program": self.program, "seconds": round(time.monotonic() - self.begin, 1), "parts": self.parts,
                  "table": [dict(zip(("what", "measured", "target", "bound", "status"), line)) for line in self.table()]}
        self.save("report.json", json.dumps(report, indent=1) + "\n")
        self.save("table.txt", self.table_text())
        self.pack()

    def pack(self):
        """Writes the archive atomically: all files of the output folder except the model's."""
        if self.archive is None:
            return
        unfinished = self.archive.with_name(self.archive.name + ".partial")
        try:
            with tarfile.open(unfinished, "w:gz") as archive:
                for path in sorted(self.out.iterdir()):
                    if path.is_file() and path.suffix != ".partial" and path != self.archive:
                        archive.add(path, arcname="%s/%s" % (self.out.name, path.name))
            unfinished.replace(self.archive)
        except OSError as error:
            if self.unsaved is None:
                say("   %s cannot be written: %s" % (self.archive, error))
            self.unsaved = str(error)

    def log_clocks(self):
        """Logs clocks, power and temperature during all measurements if the vendor's tool is installed. The tool changes no settings."""
        if self.emulated or shutil.which(self.vendor["clocks"][0], path=self.environment.get("PATH")) is None:
            return
        with open(self.out / "clocks.csv", "a") as out:
            self.begin_process(self.vendor["clocks"], out)

    def run_selftest(self):
        few = SHORT_SELFTEST if self.options.short else None
        alone = self.options.run == "selftest"
        self.try_all_parts("selftest", few, SELFTEST_S * (2 if alone else 1), SELFTEST_PART_S)
        if not alone:
            return
        names = [name for name in self.names_of("selftest", few) if name != "models"]
        for tool in self.vendor["sanitizers"]:
            self.under_tool("selftest", tool, names, SANITIZED_S, ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"],
                            ["--small-shapes"])

    def run_bench(self):
        if self.emulated:
            self.parts["kernel-bench"] = {"status": "skipped", "why": "emulated"}
            return
        alone = self.options.run == "bench"
        self.try_all_parts("kernel-bench", None, BENCH_S * (3 if alone else 1), BENCH_PART_S * (2 if alone else 1))
        if alone:
            self.under_tool("kernel-bench", self.vendor["profiler"], self.names_of("kernel-bench"), PROFILED_S, self.vendor["profile"])

    def run_ladder(self):
        self.part("launch", self.options.ready_budget, self.start_server)
        launched = self.parts["launch"]["status"] == "done"
        for name, prompt, answer, concurrency, window, budget, _, _ in self.ladder():
            if launched:
                self.part(name, budget * self.options.patience,
                          lambda seconds, r=(name, prompt, answer, concurrency, window): self.rung(*r, seconds))
            else:
                self.parts[name] = {"status": "failed", "why": "no server"}

    def run_first(self):
        self.try_all_parts("selftest", FIRST_PARTS, FIRST_S, SELFTEST_PART_S)
        if not self.vendor["sanitizers"]:
            return
        self.under_tool("selftest", "memcheck", FIRST_SANITIZED, SANITIZED_S, ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"],
                        ["--small-shapes"])

    def run_second(self):
        if self.emulated:
            self.parts["kernel-bench"] = {"status": "skipped", "why": "emulated"}
        else:
            self.try_all_parts("kernel-bench", SECOND_PARTS, BENCH_S, BENCH_PART_S)
        self.run_ladder()
        again = next((rung for rung in self.ladder() if rung[0] == SECOND_GRAPHS or self.options.short), None)
        self.stop_server()
        self.graphs = True
        name, prompt, answer, concurrency, window, budget, _, _ = again
        self.part(name + GRAPHS_SUFFIX, (budget + self.options.ready_budget) * self.options.patience,
                  lambda seconds: self.rung(name + GRAPHS_SUFFIX, prompt, answer, concurrency, window, seconds))

    def run_parts(self):
        self.log_clocks()
        for name, run in (("first", self.run_first), ("second", self.run_second)):
            if self.options.run == name:
                return run()
        for name, run in (("selftest", self.run_selftest), ("bench", self.run_bench), ("ladder", self.run_ladder)):
            if self.options.run in ("all", name):
                run()

    def all(self):
        whole = False
        try:
            self.program = self.version()
            self.run_parts()
            whole = True
        except Stopped:
            say("\ntold to end: what is missing is run by the next call")
        except Exception:  # the results so far must still be printed
            say(traceback.format_exc())
        ignore_signals()  # ignore further signals, so that the device is released and the table printed
        for child in list(self.children):
            self.end_process(child)
        self.write()
        say("\n%s\n%s after %.0f s; details in %s" % (self.table_text(), self.out / "report.json", time.monotonic() - self.begin, self.out))
        if self.unsaved is not None:
            say("not all of it could be written: %s" % self.unsaved)
        states = {part["status"] for part in self.parts.values()}
        lacks_library = self.needs_library() and self.library() is None
        return 0 if whole and self.unsaved is None and states <= {"done", "skipped"} and not lacks_library else 1


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def ignore_signals():
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def stop(number, frame):
    ignore_signals()
    raise Stopped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "hip", "emulated"), default="cuda")
    parser.add_argument("--out", default="gpu-report", help="folder for the parts' files (default: gpu-report)")
    parser.add_argument("--dist", help="folder of an unpacked distribution")
    parser.add_argument("--model", help="serve this folder's shape instead of Llama 3.3 70B's")
    parser.add_argument("--short", action="store_true", help="few checks and tiny requests: tries the script itself")
    parser.add_argument("--again", action="store_true", help="run parts whose results are there")
    parser.add_argument("--archive", help="a .tgz that holds all files of the report, written anew after every part")
    parser.add_argument("--run", choices=("all", "selftest", "bench", "ladder", "first", "second"), default="all",
                        help="one of three runs: selftest, also under compute-sanitizer; kernel-bench, also under ncu; the load; or one "
                        "of two short ones: first and second")
    parser.add_argument("--budget", type=float, help="seconds in all (default: %d; of one run: %d, first: %d, second: %d)"
                        % (TOTAL_S, RUN_S, FIRST_S, SECOND_S))
    parser.add_argument("--part-budget", type=float, help="seconds of each part of selftest (default: %d) and kernel-bench (%d)"
                        % (SELFTEST_PART_S, BENCH_PART_S))
    parser.add_argument("--ready-budget", type=float, default=READY_S, help="seconds that the server may take to be ready (default: %d)" % READY_S)
    parser.add_argument("--patience", type=float, default=1, help="times the seconds that each load may take (default: 1)")
    parser.add_argument("--serve-options", help="further options of the server, as one word (default: %s)" % LADDER_OPTIONS)
    options = parser.parse_args()
    if options.budget is None:
        options.budget = {"all": TOTAL_S, "first": FIRST_S, "second": SECOND_S}.get(options.run, RUN_S)
    report = Report(options)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, stop)
    sys.exit(report.all())


if __name__ == "__main__":
    main()
