#!/usr/bin/env python3
"""Builds and runs the test suites; the last line is `N passed, N failed`.

Usage: tests/run.py [--ahead=SUITE] test | more | all | slow | sanitizers | fast | SUITE...
suites: lint unit e2e asan-core tsan-core cuda arm-compile unit-slow e2e-slow asan tsan robustness web distributed arm races machine-code ptx
`test` is e2e and unit, `more` is lint, asan-core, tsan-core, cuda and arm-compile, `all` is both. `--ahead` builds what a suite of a later call needs while e2e runs.
`slow`, no part of `all`, is what unit and e2e leave out for its time: tests named `Heavy`, and those marked slow.
`sanitizers`, no part of `all`, is asan and tsan: most test programs; asan-core and tsan-core are those of what reads foreign bytes, and of base.
`fast` runs the unit test programs that changed since they last passed, and lint of the files that changed.
`web`, no part of `all`, looks at the page in a browser. `distributed`, no part of `all`, runs ranks as processes, also on several (pretended) machines; needs root.
`robustness`, no part of `all`, runs the tests of the cases in docs/security.md, and keeps their results for that page.
`races`, no part of `all`, looks for data races of all kernels, of which `tsan` checks some; tens of minutes.
`machine-code`, no part of `all`, compiles the CUDA kernels for all architectures and looks at what the compiler made of them; minutes.
`ptx`, no part of `all`, runs the checks of the kernels with all shapes on the PTX that nvcc makes of them, of which `cuda` runs some; minutes.
`arm`, no part of `all`, compiles for aarch64 and runs tests under qemu, for CPUs with and without the newer instructions; slow.
Exits with 1 where a test failed or a suite ran nothing.
"""
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
# Virtual environments and the lists of what is in them. Clients that pin much have one of their own.
VENVS = {VENV: ROOT / "tests" / "requirements.txt",
         ROOT / ".venv-lm-eval": ROOT / "tests" / "requirements-lm-eval.txt",
         ROOT / ".venv-schemathesis": ROOT / "tests" / "requirements-schemathesis.txt"}
LINT_VENV = ROOT / ".venv-lint"
CUDA_VENV = ROOT / ".venv-cuobjdump"
CUDA_ARCHITECTURE = "90"
CUDA_FOLDER = "cuda-test"
ARM_COMPILER = "aarch64-linux-gnu-g++"
# Only what hangs takes so long: a program, and all of e2e, of which one test may take this long.
PROGRAM_TIMEOUT_S = 1800
E2E_TIMEOUT_S = 5400
E2E_TEST_S = 1200
# Of end-to-end tests that fail, which share the machine with builds, so many may run again by themselves.
MOST_AGAIN = 3
# A program under qemu, which shares the machine with other work.
EMULATED_TIMEOUT_S = 4 * PROGRAM_TIMEOUT_S
# How often a build says how far it is.
BUILD_NEWS_S = 15
# Of what a suite said that failed, so many characters are repeated at the end.
LAST_WORDS = 2000
# Between the tries of a download.
PAUSES_S = [10, 60]
# Folders whose threads are worth the price of the thread sanitizer.
TSAN_FOLDERS = ["base", "engine", "server"]
# Those whose programs are built and run soon: what parses what strangers write, and what all threads stand on.
ASAN_CORE = ["base", "chat", "checkpoint", "constraints", "media", "parsers", "tokenizer", "vision"]
TSAN_CORE = ["base"]
# The races of kernels, and the parts of their checks that are part of `all`.
RACES = "kernel_races"
RACES_CORE = ["instructions", "linear", "grouped_linear", "attention", "lora"]
# Of the build for aarch64: folders whose tests qemu runs, and the CPUs that it stands in for, each with its kernels, the best
# last, and the kernels' tests that are run on it. qemu has no limits of its own on memory, and starts no program of aarch64 from
# another, which death tests need.
ARM_FOLDERS = ["base", "checkpoint", "engine", "hardware", "kernels", "models", "tensor"]
ARM_FILTER = "*:-*Heavy*:*DeathTest*"
# What is emulated of CUDA has no code of its own for aarch64, and takes qemu hours.
ARM_KERNELS_FILTER = ARM_FILTER + ":*KernelChecks*:SeededOrders*:DeviceLinear*:ExpertProducts*"
# Of the engine's promise the tests with adapters, which ask for the base as well: those of each model take qemu more than twenty minutes. That of
# every format and family is held by models.
ARM_FILTERS = {"engine": "AdapterPromiseTest.*", "models": ARM_FILTER + ":*Device*"}
ARM_CPUS = {"max": ("reference neon neon_dotprod neon_bf16", ARM_KERNELS_FILTER),
            "neoverse-n1": ("reference neon neon_dotprod", "DispatchTest.*:Isa/LinearTest*neon_dotprod"),
            "cortex-a72": ("reference neon", "DispatchTest.*:Isa/LinearTest*neon:Isa/SamplingTest*neon")}
# What has code of its own for aarch64, which every change compiles.
ARM_COMPILED = ["sluice_kernels_neon", "sluice_kernels_neon_dotprod", "sluice_kernels_neon_bf16", "hardware_test"]
# The bundled model's answers, and small checkpoints against transformers.
ARM_E2E = ["tests/e2e/test_calculator.py", "tests/e2e/test_golden.py", "-k", "not held_out"]
# Folders that the address sanitizer leaves out for time: what they are made of has tests of its own, and they read
# nothing that strangers write but through those.
NOT_ASAN_FOLDERS = ["cli", "selftest"]
# Tests that take long: a suite of their own.
SLOW_FILTER = "*Heavy*"
NOT_SLOW_FILTER = "*:-" + SLOW_FILTER
# Under a sanitizer these take minutes and add no path through a parser; emulated kernels read and write the same places in other orders of warps and
# with other instructions, and grouped products are made of linear's tiles. Replayed answers of every parser are read by the parsers' own tests, too.
SANITIZER_FILTER = os.environ.get("SLUICE_SANITIZER_FILTER", "*:-*Heavy*:Parsers/ReplayTest.*:*Kernel*/grouped_linear:*PassInSeededOrders*:*PassWithoutE4m3*")


class Tally:
    def __init__(self):
        self.passed = self.failed = 0
        self.empty = []
        self.faults = []  # of each suite that failed, its name and what it said
        self.lock = threading.Lock()

    def add(self, suite, passed, failed, seconds, detail=""):
        with self.lock:
            self.passed += passed
            self.failed += failed
            if passed + failed == 0:
                self.empty.append(suite)
            if failed:
                self.faults.append((suite, detail))
            print("%-24s %5d passed, %d failed  (%.1f s)" % (suite, passed, failed, seconds), flush=True)
            if detail:
                print(detail, flush=True)


def run(argv, **kw):
    return subprocess.run([str(a) for a in argv], cwd=ROOT, **kw)


def retried(argv):
    """Runs a command that downloads; ends the run where it fails again and again."""
    for pause in [*PAUSES_S, None]:
        result = run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode == 0:
            return
        print("%s\n%s: exit code %d%s" % (result.stdout[-3000:], " ".join(map(str, argv)), result.returncode,
                                         "; again in %d s" % pause if pause is not None else ""), flush=True)
        if pause is not None:
            time.sleep(pause)
    print("0 passed, 1 failed (download)")
    sys.exit(1)


def threads_of(pid):
    """Where its threads are: running, or waiting for what."""
    lines = []
    for task in sorted(pathlib.Path("/proc", str(pid), "task").glob("*")):
        try:
            state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
            lines.append("thread %s %s %s in %s" % (task.name, (task / "comm").read_text().strip(), state, (task / "wchan").read_text()))
        except OSError:
            pass  # it has ended
    return lines


def processes_in(folder):
    """Those whose TMPDIR it is: a program, and whatever it started, in whatever session."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"TMPDIR=" + os.fsencode(folder) in (process / "environ").read_bytes().split(b"\0"):
                found.append((int(process.name), (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            pass  # another user's, or it has ended
    return found


def run_in(folder, argv, timeout, environment):
    """Exit code and output of a program whose TMPDIR is `folder`. Nothing that it started outlives it."""
    # Not a pipe, which what it leaves behind would keep open.
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([str(word) for word in argv], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   env={**os.environ, **environment, "TMPDIR": str(folder)})
        notes = []
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = 1
            notes = ["not done in %d s" % timeout, *threads_of(process.pid)]
        finally:
            process.kill()
            process.wait()
            for _ in range(10):  # one may be starting another
                for pid, words in processes_in(folder):
                    notes.append("ended what was left: %d %s" % (pid, words))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        out.seek(0)
        output = out.read().decode("utf-8", "replace")
    return code, "\n".join([output, *notes])


def without_passed(output):
    """What GoogleTest prints, but for the tests that passed: what is left tells of those that failed and of the one that was running."""
    kept, last = [], []
    for line in output.splitlines():
        if line.startswith("[ RUN "):
            kept += last
            last = [line]
        elif line.startswith("[       OK ]"):
            last = []
        else:
            last.append(line)
    return "\n".join(kept + last)


class BuildsAhead:
    """Builds what later suites want while tests run that leave much of the processors idle, which it gives way to. Who needs a build
    waits for these and then makes it as ever: nothing is said here, of errors neither."""

    def __init__(self):
        self.wanted = []  # presets and their targets
        self.thread = None

    def begin(self):
        self.thread = threading.Thread(target=self.make, daemon=True)
        self.thread.start()

    def wait(self):
        if self.thread:
            self.thread.join()

    def make(self):
        for preset, targets in self.wanted:
            for argv in (["cmake", "--preset", preset, "--log-level=WARNING"],
                         ["cmake", "--build", "build/" + preset, "--parallel", os.cpu_count(), "--target", *targets]):
                run(["nice", "-n", "19", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


builds_ahead = BuildsAhead()


def configure(preset, name, options=()):
    folder = ROOT / "build" / name
    if not (folder / "build.ninja").exists():
        run(["cmake", "--preset", preset, "-B", folder, "--log-level=WARNING", *options], check=True, stdout=subprocess.DEVNULL)
    return folder


def build(preset, targets=(), name=None, options=()):
    """Configures where needed and builds; the build's own errors are the message."""
    builds_ahead.wait()
    name = name or preset
    folder = configure(preset, name, options)
    start = time.time()
    argv = ["cmake", "--build", folder]
    if targets:
        argv += ["--target", *targets]
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    said, next_news = [], start + BUILD_NEWS_S
    with subprocess.Popen([str(word) for word in argv], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment) as process:
        for line in process.stdout:
            if not line.startswith("["):
                said.append(line)
            elif time.time() > next_news:
                next_news = time.time() + BUILD_NEWS_S
                print("build %-18s %s" % (name, line.split("]")[0] + "]"), flush=True)
    if process.returncode:
        print("".join(said)[-6000:])
        print("0 passed, 1 failed (build of %s)" % name)
        sys.exit(1)
    print("build %-18s (%.1f s)" % (name, time.time() - start), flush=True)
    return folder


def unit_programs(folder, only=None):
    """Names and commands of the test programs that ctest knows, or of those named; the others may not have been built."""
    out = run(["ctest", "--test-dir", folder, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    return [(t["name"], t["command"]) for t in json.loads(out)["tests"] if only is None or t["name"] in only]


def run_gtest(tally, suite, command, test_filter="*", environment=None, kept=None, timeout=None):
    """`command`: the program, behind what emulates its processor if that is another one; `kept`: where its report is copied to."""
    start = time.time()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        report = pathlib.Path(scratch) / "report.json"
        # Temporary files of its own: two suites may run at a time, and nothing is found that an earlier one left.
        own_folder = pathlib.Path(scratch) / "tmp"
        own_folder.mkdir()
        code, output = run_in(own_folder, [*command, "--gtest_output=json:%s" % report, "--gtest_filter=%s" % test_filter],
                              timeout or PROGRAM_TIMEOUT_S, {"TEST_TMPDIR": str(own_folder) + "/", **(environment or {})})
        passed = failed = 0
        with contextlib.suppress(OSError, ValueError):  # it is not there, or was cut short with the program
            cases = [c for s in json.loads(report.read_text())["testsuites"] for c in s["testsuite"]]
            failed = sum("failures" in c for c in cases)
            passed = sum("failures" not in c and c["result"] == "COMPLETED" for c in cases)
            if kept:
                shutil.copy(report, kept)
    if code and not failed:
        failed = 1  # it crashed, or a sanitizer spoke
    tally.add(suite, passed, failed, time.time() - start, without_passed(output)[-4000:] if failed else "")
    return failed == 0 < passed


def run_units(tally, label, folder, only=None, test_filter="*", environment=None):
    programs = unit_programs(folder, only)
    if not programs:
        tally.empty.append(label)
    # Most programs use one core: two at a time.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda p: run_gtest(tally, "%s %s" % (label, p[0]), p[1], test_filter, environment), programs):
            pass


def unit(tally):
    run_units(tally, "unit", build("release"), test_filter=NOT_SLOW_FILTER)


def unit_slow(tally):
    folder = build("release")
    slow = [name for name, command in unit_programs(folder)
            if run([*command, "--gtest_list_tests", "--gtest_filter=" + SLOW_FILTER], check=True, capture_output=True, text=True).stdout.count("\n") > 1]
    run_units(tally, "unit-slow", folder, slow, SLOW_FILTER)


def fast(tally):
    """The unit test programs that are not byte for byte those that last passed; whoever links what changed is among them."""
    folder = build("release")
    passed = folder / "passed"
    passed.mkdir(exist_ok=True)

    def digest(path):
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()

    programs = [(name, command, digest(command[-1])) for name, command in unit_programs(folder)]
    stale = [(name, command, now) for name, command, now in programs
             if not (passed / name).exists() or (passed / name).read_text() != now]
    print("unit: %d of %d programs changed since they last passed" % (len(stale), len(programs)), flush=True)

    def one(program):
        name, command, now = program
        (passed / name).unlink(missing_ok=True)
        if run_gtest(tally, "unit %s" % name, command, NOT_SLOW_FILTER):
            (passed / name).write_text(now)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, stale))
    run_lint(tally, ["--changed"])


def lint(tally):
    build("release", ["sluice"])
    run_lint(tally, [])


def run_lint(tally, words):
    """Each of lint's checks counts as a test."""
    make_venv(LINT_VENV, ROOT / "tests" / "requirements-lint.txt")
    start = time.time()
    result = run(["tools/lint.py", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    total = len(re.findall(r"^lint \S+ +(?:ok|found:) ", result.stdout, re.M))
    good = len(re.findall(r"^lint \S+ +ok ", result.stdout, re.M))
    bad = max(total - good, int(result.returncode != 0))
    tally.add("lint", good, bad, time.time() - start, result.stdout)


def asan_folders():
    folders = {path.relative_to(ROOT / "src").parts[0] for path in (ROOT / "src").rglob("*_test.cc")}
    return sorted(folders - set(NOT_ASAN_FOLDERS))


def programs_of(folders):
    return [name + "_test" for name in folders]


def run_asan(tally, suite, folders):
    run_units(tally, suite, build("asan", programs_of(folders)), folders, SANITIZER_FILTER,
              environment={"ASAN_OPTIONS": "detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1"})


def run_tsan(tally, suite, folders):
    run_units(tally, suite, build("tsan", programs_of(folders)), folders, SANITIZER_FILTER, {"TSAN_OPTIONS": "halt_on_error=1"})


def asan_core(tally):
    run_asan(tally, "asan-core", ASAN_CORE)


def tsan_core(tally):
    run_tsan(tally, "tsan-core", TSAN_CORE)


def asan(tally):
    run_asan(tally, "asan", asan_folders())


def tsan(tally):
    folder = build("tsan", programs_of([*TSAN_FOLDERS, RACES]))
    run_tsan(tally, "tsan", TSAN_FOLDERS)
    # It counts what the sanitizer reports.
    run_units(tally, "tsan", folder, [RACES], "Races.*:%s" % ":".join("*/" + part for part in RACES_CORE))


def races(tally):
    """All checks of the kernels, their threads fibers of the thread sanitizer."""
    run_units(tally, "races", build("tsan", [RACES + "_test"]), [RACES], environment={"RACES": "all"})


def make_venv(folder, requirements):
    """A virtual environment with exactly the pinned packages, made once for each version of the list."""
    stamp = folder / "requirements.txt"
    if stamp.exists() and stamp.read_bytes() == requirements.read_bytes():
        return
    start = time.time()
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", folder], check=True)
    retried([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", requirements])
    shutil.copy(requirements, stamp)
    print("build %-18s (%.1f s)" % (folder.name, time.time() - start), flush=True)


def make_venvs():
    for folder, requirements in VENVS.items():
        make_venv(folder, requirements)


def pytest_counts(report):
    """Tests, those that failed and those that were skipped, of a JUnit file."""
    total = bad = skipped = 0
    if report.exists():
        for node in xml.etree.ElementTree.parse(report).getroot().iter("testsuite"):
            total += int(node.get("tests"))
            bad += int(node.get("failures")) + int(node.get("errors"))
            skipped += int(node.get("skipped"))
    return total, bad, skipped


def run_pytest(tally, suite, report, words, environment=None, tries=1):
    """Runs tests in the virtual environment of the end-to-end tests; `report` becomes their JUnit file. More than one of `tries`: up to
    MOST_AGAIN tests that fail run again, by themselves; what their first run said is printed all the same, as it may be a rare fault."""
    make_venvs()
    start = time.time()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as kept:
        argv = [VENV / "bin/python", "-m", "pytest", "-q", "-rs", "-o", "cache_dir=%s" % kept, "-o", "faulthandler_timeout=%d" % E2E_TEST_S,
                "--durations=5", *words]

        def attempt(report, *more):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own_folder:
                code, output = run_in(own_folder, [*argv, "--junitxml=%s" % report, *more], E2E_TIMEOUT_S, {"PYTHONUTF8": "1", **(environment or {})})
            total, bad, skipped = pytest_counts(report)
            return total, bad if bad or not code else 1, skipped, output

        total, bad, skipped, output = attempt(report)
        for line in output.splitlines():
            if line.startswith("SKIPPED"):
                print(line, flush=True)
        if tries > 1 and total > 0 < bad <= MOST_AGAIN:
            print("%s: %d failed, and run again by themselves:\n%s" % (suite, bad, output[-8000:]), flush=True)
            again, bad, _, output = attempt(report.with_suffix(".again.xml"), "--last-failed", "--last-failed-no-failures", "none")
            bad = bad if again else 1
    tally.add(suite, total - bad - skipped, bad, time.time() - start, output[-8000:] if bad else "")


def e2e(tally):
    build("release", ["sluice"])
    builds_ahead.begin()  # beside the downloads, too
    make_venvs()
    with tempfile.TemporaryDirectory() as scratch:
        run_pytest(tally, "e2e", pathlib.Path(scratch) / "report.xml", ["tests/e2e", "-m", "not slow"], tries=2)


def e2e_slow(tally):
    build("release", ["sluice"])
    with tempfile.TemporaryDirectory() as scratch:
        run_pytest(tally, "e2e-slow", pathlib.Path(scratch) / "report.xml", ["tests/e2e", "-m", "slow"], tries=2)


def web(tally):
    build("release", ["sluice"])
    with tempfile.TemporaryDirectory() as scratch:
        run_pytest(tally, "web", pathlib.Path(scratch) / "report.xml", ["tests/web"])


def distributed(tally):
    # The test programs are those that copies of sources with mistakes are linked with.
    build("release", ["sluice", "models_test", "parallel_test"])
    with tempfile.TemporaryDirectory() as scratch:
        run_pytest(tally, "distributed", pathlib.Path(scratch) / "report.xml", ["tests/distributed"])


def robustness(tally):
    listed = json.loads(run(["tools/security_cases.py", "list"], check=True, capture_output=True, text=True).stdout)
    folder = build("release", ["sluice", *listed["gtest"]])
    start = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        reports = []
        programs = {name.removesuffix("_test"): names for name, names in listed["gtest"].items()}
        for program, command in unit_programs(folder, programs):
            reports.append(pathlib.Path(scratch) / (program + ".json"))
            names = ":".join("%s:*/%s/*" % (name, name) for name in programs[program])
            run_gtest(tally, "robustness %s" % program, command, names, kept=reports[-1])
        reports.append(pathlib.Path(scratch) / "pytest.xml")
        run_pytest(tally, "robustness", reports[-1], listed["pytest"])
        run(["tools/security_cases.py", "record", round(time.time() - start), *[path for path in reports if path.exists()]], check=True)
    run(["tools/security_cases.py", "page"], check=True)


def nvcc(folder):
    """The compiler of a build for CUDA."""
    found = next(folder.glob("CMakeFiles/*/CMakeCUDACompiler.cmake")).read_text()
    return pathlib.Path(re.search(r'^set\(CMAKE_CUDA_COMPILER "(.*)"\)$', found, re.M).group(1))


def cuobjdump(folder):
    """The toolkit's, or one from its wheel; nvdisasm stands beside it."""
    beside = nvcc(folder).resolve().parent
    if (beside / "cuobjdump").exists() and (beside / "nvdisasm").exists():
        return beside / "cuobjdump"
    make_venv(CUDA_VENV, ROOT / "tests" / "requirements-cuda.txt")
    return next(CUDA_VENV.glob("lib/python3*/site-packages/nvidia/*/bin/cuobjdump"))


def cuda_for_arm(folder):
    """Compiles the sources of the host's part that know of CUDA for an Arm host, with the options of a build: their names, what is wrong."""
    names, faults = [], []
    if not shutil.which(ARM_COMPILER):
        return names, ["%s is not there" % ARM_COMPILER]
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        source = pathlib.Path(entry["file"])
        if "-DSLUICE_CUDA" not in words or source.suffix != ".cc" or ROOT / "src" not in source.parents:
            continue
        kept = [word for word in words if re.match(r"-(D|W|std=)|-I%s" % re.escape(str(ROOT)), word)]
        # CUDA's headers are the same for both; those of Debian's packages come behind the cross compiler's own.
        system = [words[i + 1] for i, word in enumerate(words) if word == "-isystem"]
        result = run([ARM_COMPILER, "-fsyntax-only", *kept, *["-isystem" + path for path in system], "-idirafter", "/usr/include", source],
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        names.append(source.name)
        if result.returncode:
            faults.append(result.stdout)
    return names, faults


def cuda_options(release):
    """Of the build with CUDA, for one architecture, whose host part is that of `release`."""
    return ["-DSLUICE_CUDA_ARCHITECTURES=%s" % CUDA_ARCHITECTURE, "-DSLUICE_PLAIN_BUILD=%s" % release]


def cuda(tally):
    """Compiles the CUDA part for one architecture, and looks at the program that holds it: it needs no GPU to start."""
    release = build("release", ["sluice"])
    run(["tools/cuda_toolkit.sh"], check=True)
    folder = build("cuda", ["sluice_over_plain", "cuda_device_test"], CUDA_FOLDER, cuda_options(release))
    run_gtest(tally, "cuda device", [folder / "bin" / "cuda_device_test"])
    start = time.time()
    program = folder / "bin" / "sluice_over_plain"
    faults = []
    total = 0

    def check(what, good, found):
        nonlocal total
        total += 1
        if not good:
            faults.append("%s; found:\n%s" % (what, found))

    def output(*argv):
        result = run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PROGRAM_TIMEOUT_S)
        return result.returncode, result.stdout

    tool = cuobjdump(folder)
    compiled = ".sm_%s.cubin" % CUDA_ARCHITECTURE
    kernels = sorted((ROOT / "src" / "kernels" / "cuda").glob("*.cu"))
    for kernel in kernels:
        _, listed = output(tool, "--list-elf", next(folder.rglob(kernel.name + ".o")))
        check("expected code of %s for sm_%s alone" % (kernel.name, CUDA_ARCHITECTURE),
              compiled in listed and listed.count(".sm_") == 1, listed)
    _, listed = output(tool, "--list-elf", program)
    check("expected %d files of code in the program" % len(kernels),
          listed.count(compiled) == len(kernels) == listed.count(".sm_"), listed)
    _, listed = output(tool, "--list-ptx", program)
    check("expected no PTX, which a driver would compile at run time", ".ptx" not in listed, listed)
    code, said = output("tools/machine_code.py", "check", folder, "--tools", tool.parent)
    check("expected every kernel's machine code as planned", code == 0, said)
    _, listed = output("ldd", program)
    check("expected no library of CUDA to be needed", not re.search(r"libcu(?!rl)|libnv|not found", listed), listed)
    code, said = output(program, "version")
    check("expected it to start without a GPU", code == 0, said)
    code, said = output(program, "doctor")
    check("expected doctor to speak of CUDA", code == 0 and re.search(r"cuda", said, re.I), said)
    code, said = output("tools/hip_kernels.sh", "--check")
    check("expected the kernels' source to be right for an AMD GPU, too (tools/install_packages.sh lint brings Clang 19)", code == 0, said)
    names, found = cuda_for_arm(folder)
    check("expected the host's part to compile for aarch64, too, by %s (tools/install_packages.sh arm)" % ARM_COMPILER,
          "cuda_device.cc" in names and not found, "".join(found) or names)
    if not pathlib.Path("/dev/nvidiactl").exists():
        code, said = output(program, "serve", "models/abacus", "--device", "cuda", "--port", "0")
        check("expected --device cuda to say that there is no driver", code != 0 and "driver" in said, said)
    tally.add("cuda program", total - len(faults), len(faults), time.time() - start, "\n".join(faults)[-8000:])
    check_ptx(tally, "cuda ptx")


def machine_code(tally):
    """The machine code of all kernels for all architectures; `cuda` looks at that of one."""
    run(["tools/cuda_toolkit.sh"], check=True)
    folder = build("cuda", ["sluice_cuda_kernels"], CUDA_FOLDER + "-all")
    start = time.time()
    result = run(["tools/machine_code.py", "check", folder, "--tools", cuobjdump(folder).parent], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    kernels = re.match(r"(\d+) kernels as planned", result.stdout)
    tally.add("machine code", int(kernels.group(1)) if kernels else 0, 0 if kernels else len(result.stdout.splitlines()), time.time() - start,
              "" if kernels else result.stdout)


def check_ptx(tally, suite, *words):
    """Checks of the kernels on the PTX that nvcc makes of them, in an interpreter."""
    folder = build("release", ["ptx_test"])
    compiler = nvcc(ROOT / "build" / CUDA_FOLDER)
    start = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        def compiled(kernel):
            # As the emulator's source is compiled: no product is fused with a sum where the source does not say so.
            return run([compiler, "-ptx", "-std=c++20", "-fmad=false", "-arch=compute_%s" % CUDA_ARCHITECTURE, "-I%s" % (ROOT / "src"), kernel,
                        "-o", "%s/%s.ptx" % (scratch, kernel.stem)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        kernels = sorted((ROOT / "src" / "kernels" / "cuda").glob("*.cu"), key=lambda kernel: -kernel.stat().st_size)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            faults = [result.stdout for result in pool.map(compiled, kernels) if result.returncode]
        if faults:
            tally.add(suite, 0, len(faults), time.time() - start, "\n".join(faults)[-8000:])
            return
        code, output = run_in(scratch, [folder / "bin" / "ptx_test", scratch, *words], PROGRAM_TIMEOUT_S, {})
    counted = re.search(r"^(\d+) passed, (\d+) failed$", output, re.M)
    passed, failed = (int(counted[1]), int(counted[2])) if counted else (0, 1)
    failed = max(failed, int(code != 0))
    tally.add(suite, passed, failed, time.time() - start, output[-8000:] if failed else "")


def ptx(tally):
    release = build("release", ["sluice"])
    run(["tools/cuda_toolkit.sh"], check=True)
    configure("cuda", CUDA_FOLDER, cuda_options(release))
    check_ptx(tally, "ptx", "--all")


def arm_compile(tally):
    folder = build("arm", ARM_COMPILED)
    for name, command in unit_programs(folder, ["hardware"]):
        run_gtest(tally, "arm %s" % name, command)
    start = time.time()
    counted = run(["tools/arm_loops.py", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    tally.add("arm inner loops", int(counted.returncode == 0), int(counted.returncode != 0), time.time() - start,
              counted.stdout if counted.returncode else "")


def arm(tally):
    """The same bits whatever the batch are held by the programs of models and engine; through HTTP that takes qemu half an hour."""
    folder = build("arm", ["sluice", *[name + "_test" for name in ARM_FOLDERS]])
    emulator = unit_programs(folder, ARM_FOLDERS)[0][1][:-1]
    program = folder / "bin" / "sluice"
    start = time.time()
    faults = []
    for cpu, (kernels, _) in ARM_CPUS.items():
        said = run([*emulator, "-cpu", cpu, program, "version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                   timeout=PROGRAM_TIMEOUT_S).stdout
        if "\n cpu: %s\n" % kernels not in said:
            faults.append("%s: expected the kernels %s; found:\n%s" % (cpu, kernels, said))
    tally.add("arm kernels chosen", len(ARM_CPUS) - len(faults), len(faults), time.time() - start, "\n".join(faults))
    for cpu, (_, kernel_tests) in ARM_CPUS.items():
        folders = ARM_FOLDERS if cpu == "max" else ["hardware", "kernels"]
        for name, command in unit_programs(folder, folders):
            test_filter = kernel_tests if name == "kernels" else ARM_FILTERS.get(name, ARM_FILTER)
            run_gtest(tally, "arm %s %s" % (cpu, name), command, test_filter, {"QEMU_CPU": cpu}, timeout=EMULATED_TIMEOUT_S)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in ("sluice", "vllm", "trtllm-serve"):
            script = scratch / name
            script.write_text('#!/bin/sh\nexec %s -0 %s %s "$@"\n' % (" ".join(emulator), name, program))
            script.chmod(0o755)
        for cpu in ("max", "cortex-a72"):
            run_pytest(tally, "arm %s e2e" % cpu, scratch / "report.xml", ARM_E2E, {"SLUICE_BIN": str(scratch), "QEMU_CPU": cpu})


SUITES = {"lint": lint, "unit": unit, "fast": fast, "e2e": e2e, "asan-core": asan_core, "tsan-core": tsan_core, "cuda": cuda, "arm-compile": arm_compile,
          "unit-slow": unit_slow, "e2e-slow": e2e_slow, "asan": asan, "tsan": tsan, "robustness": robustness, "web": web, "distributed": distributed,
          "arm": arm, "races": races, "machine-code": machine_code, "ptx": ptx}
# Suites whose builds are made while e2e runs, with the preset and its targets.
BUILT_AHEAD = {"unit": lambda: ("release", ["all"]), "asan-core": lambda: ("asan", programs_of(ASAN_CORE)),
               "tsan-core": lambda: ("tsan", programs_of(TSAN_CORE))}
# `test` is what a change needs before anybody looks at it; `more` is what it needs before it is merged, too.
GROUPS = {"test": ["e2e", "unit"], "more": ["lint", "asan-core", "tsan-core", "cuda", "arm-compile"],
          "slow": ["unit-slow", "e2e-slow"], "sanitizers": ["asan", "tsan"]}
GROUPS["all"] = GROUPS["test"] + GROUPS["more"]


def main(words):
    ahead = [word.removeprefix("--ahead=") for word in words if word.startswith("--ahead=")]
    words = [word for word in words if not word.startswith("--")]
    names = [name for word in words or ["all"] for name in GROUPS.get(word, [word])]
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print("unknown suite %s: one of %s" % (unknown[0], ", ".join([*GROUPS, *SUITES])))
        return 2
    tally = Tally()
    start = time.time()
    builds_ahead.wanted = [wanted() for suite, wanted in BUILT_AHEAD.items() if suite in names or suite in ahead]
    for name in names:
        SUITES[name](tally)
    # Once more, for who sees the end of a long log only.
    for suite, detail in tally.faults:
        print("failed: %s\n%s" % (suite, detail[-LAST_WORDS:]))
    for suite in tally.empty:
        print("%s ran nothing" % suite)
    print("all suites took %.0f s" % (time.time() - start))
    print("%d passed, %d failed" % (tally.passed, tally.failed + len(tally.empty)))
    return 1 if tally.failed or tally.empty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
