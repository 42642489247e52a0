#!/usr/bin/env python3
"""Builds and runs the test suites; the last line is `N passed, N failed`.

Usage: tests/run.py [--ahead=SUITE] test | more | all | slow | sanitizers | fast | SUITE...
suites: lint unit e2e asan-core tsan-core cuda arm-compile unit-slow e2e-slow asan tsan robustness web distributed arm races machine-code ptx hip
`test` is e2e and unit, `more` is lint, asan-core, tsan-core, cuda and arm-compile, `all` is both.
`--ahead` makes the builds for SUITE, which a later call runs, while e2e runs.
`slow`, not in `all`, runs the tests that unit and e2e leave out because they take long: tests named `Heavy`, and tests marked slow.
`sanitizers`, not in `all`, is asan and tsan, which run most test programs. asan-core and tsan-core run only a part: parsers of untrusted
input, and base.
`fast` runs the unit test programs that changed since they last passed, and lint of the files that changed.
`web`, not in `all`, tests the web page in a browser.
`distributed`, not in `all`, runs ranks as processes, also on several (simulated) machines; needs root.
`robustness`, not in `all`, runs the tests of the cases in docs/security.md, and stores their results for that page.
`races`, not in `all`, looks for data races in all kernels (`tsan` checks some of them); takes tens of minutes.
`machine-code`, not in `all`, compiles the CUDA kernels for all architectures and checks the machine code; takes minutes.
`ptx`, not in `all`, runs the kernels' checks with all shapes on nvcc's PTX (`cuda` runs some of them); takes minutes.
Seeded faults must change the kernels' memory accesses or results.
`hip`, not in `all`, compiles the kernels for AMD GPUs, checks their machine code, and runs them on a fake HIP runtime; takes minutes.
`arm`, not in `all`, compiles for aarch64 and runs tests under qemu, for CPUs with and without newer instructions; slow.
Exits with 1 if a test failed or a suite ran nothing.
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
# Virtual environments and their lists of packages. Clients with many pinned packages have their own.
VENVS = {VENV: ROOT / "tests" / "requirements.txt",
         ROOT / ".venv-lm-eval": ROOT / "tests" / "requirements-lm-eval.txt",
         ROOT / ".venv-schemathesis": ROOT / "tests" / "requirements-schemathesis.txt"}
LINT_VENV = ROOT / ".venv-lint"
CUDA_VENV = ROOT / ".venv-cuobjdump"
CUDA_ARCHITECTURE = "90"
CUDA_FOLDER = "cuda-test"
ARM_COMPILER = "aarch64-linux-gnu-g++"
# Time limits that only hanging programs reach: for a test program, all of e2e, a single test of e2e.
PROGRAM_TIMEOUT_S = 1800
E2E_TIMEOUT_S = 5400
E2E_TEST_S = 1200
# Maximum number of failed end-to-end tests that run again, alone; the first run shares the machine with builds.
MOST_AGAIN = 3
# Time limit for a program under qemu on a busy machine.
EMULATED_TIMEOUT_S = 4 * PROGRAM_TIMEOUT_S
# Interval of a build's progress messages.
BUILD_NEWS_S = 15
# Number of characters of a failed suite's output that are repeated at the end.
LAST_WORDS = 2000
# Pauses between attempts of a download.
PAUSES_S = [10, 60]
# Folders with enough threads to be worth the cost of the thread sanitizer.
TSAN_FOLDERS = ["base", "engine", "server"]
# Folders whose programs build and run quickly: parsers of untrusted input, and base, which all threads use.
ASAN_CORE = ["base", "chat", "checkpoint", "constraints", "media", "parsers", "tokenizer", "vision"]
TSAN_CORE = ["base"]
# The program that checks kernels for races, and the parts that `all` includes.
RACES = "kernel_races"
RACES_CORE = ["instructions", "linear", "grouped_linear", "attention", "lora"]
# For aarch64: folders whose tests run under qemu; and emulated CPUs, each with its kernels (the best last) and the kernel tests to run.
# qemu does not enforce memory limits, and an aarch64 program under it cannot start another one, as death tests require.
ARM_FOLDERS = ["base", "checkpoint", "engine", "hardware", "kernels", "models", "tensor"]
ARM_FILTER = "*:-*Heavy*:*DeathTest*"
# The CUDA emulation has no code specific to aarch64, and takes qemu hours.
ARM_KERNELS_FILTER = ARM_FILTER + ":*KernelChecks*:SeededOrders*:DeviceLinear*:ExpertProducts*"
# Of the engine's tests of bit-identical answers, only the adapters' test runs; it also queries the base model. The tests for each model
# take more than twenty minutes under qemu, and the tests of `models` cover every format and family.
ARM_FILTERS = {"engine": "AdapterPromiseTest.*", "models": ARM_FILTER + ":*Device*"}
ARM_CPUS = {"max": ("reference portable neon neon_dotprod neon_bf16", ARM_KERNELS_FILTER),
            "neoverse-n1": ("reference portable neon neon_dotprod", "DispatchTest.*:PortableTest.*:Isa/LinearTest*neon_dotprod"),
            "cortex-a72": ("reference portable neon", "DispatchTest.*:PortableTest.*:Isa/LinearTest*neon:Isa/SamplingTest*neon")}
# Targets with code specific to aarch64, which every change compiles.
ARM_COMPILED = ["sluice_kernels_neon", "sluice_kernels_neon_dotprod", "sluice_kernels_neon_bf16", "hardware_test"]
# The bundled model's answers, and small checkpoints compared with transformers.
ARM_E2E = ["tests/e2e/test_calculator.py", "tests/e2e/test_golden.py", "tests/e2e/test_receipts.py::test_portable_receipts", "-k", "not held_out"]
# For AMD GPUs: the tests of each test program that use the device named by SLUICE_TESTED_DEVICE; the end-to-end tests; and the parts of
# selftest that run also on gfx942, and with threads in other orders.
HIP_TESTS = {"models": "Checkpoints/DeviceDenseTest.*:Checkpoints/DeviceExpertsTest.*:DeviceRoundedInputsTest.*",
             "engine": "EngineDraws.AnEmulatedDevice*:AsyncScheduling.*:Graphs.HeavyAnswersAreThoseOfStepsThatAreLaunched",
             "selftest": "Measurements.*"}
HIP_E2E = ["tests/e2e/test_recipes.py", "tests/e2e/test_device.py", "tests/e2e/test_gpu_report.py", "-k",
           "test_003 or (test_device and not energy and not without_a_gpu) or (test_gpu_report and not lent and not say_why)"]
HIP_PARTS = ["instructions", "linear", "attention"]
LEAST_LIBRARY_ROWS = 30  # minimum rows of selftest's part `library`
# Folders that are not tested with AddressSanitizer, to save time. They read untrusted input only through code of other folders, which is
# tested there.
NOT_ASAN_FOLDERS = ["cli", "selftest"]
# Tests that take long; the suites with `-slow` run them.
SLOW_FILTER = "*Heavy*"
NOT_SLOW_FILTER = "*:-" + SLOW_FILTER
# Leaves out tests that take minutes under a sanitizer and add no coverage. Kernels emulated with other warp orders and instructions access
# the same memory. Grouped products use the tiles of linear. The parsers' other tests also read the replayed answers.
SANITIZER_FILTER = os.environ.get("SLUICE_SANITIZER_FILTER", "*:-*Heavy*:Parsers/ReplayTest.*:*Kernel*/grouped_linear:*PassInSeededOrders*:*PassWithoutE4m3*")


class Tally:
    def __init__(self):
        self.passed = self.failed = 0
        self.empty = []
        self.faults = []  # (name, output) of each suite that failed
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
    """Runs a command that downloads; retries it, and exits if all attempts fail."""
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
    """The state of each thread: running, or the kernel function in which it waits."""
    lines = []
    for task in sorted(pathlib.Path("/proc", str(pid), "task").glob("*")):
        try:
            state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
            lines.append("thread %s %s %s in %s" % (task.name, (task / "comm").read_text().strip(), state, (task / "wchan").read_text()))
        except OSError:
            pass  # the thread has ended
    return lines


def processes_in(folder):
    """Processes with this TMPDIR: a program and all that it started, in any session."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"TMPDIR=" + os.fsencode(folder) in (process / "environ").read_bytes().split(b"\0"):
                found.append((int(process.name), (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            pass  # another user's, or it has ended
    return found


def run_in(folder, argv, timeout, environment):
    """Exit code and output of a program with TMPDIR=`folder`. Processes that it left behind are killed."""
    # Not a pipe: processes left behind would keep it open.
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
            for _ in range(10):  # a process may be starting another one
                for pid, words in processes_in(folder):
                    notes.append("ended what was left: %d %s" % (pid, words))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        out.seek(0)
        output = out.read().decode("utf-8", "replace")
    return code, "\n".join([output, *notes])


def without_passed(output):
    """GoogleTest's output without tests that passed: failed tests remain, and the one that was running."""
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
    """Makes the builds of later suites at low priority while earlier tests use few processors. A suite that needs such a build waits until
    it is done, and then builds as usual. This class prints nothing, not even an error."""

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
    """Configures if necessary and builds; on failure, prints the build's output."""
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
    """Names and commands of the test programs that ctest lists. If names are given, only of these programs: the others may not be built."""
    out = run(["ctest", "--test-dir", folder, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    return [(t["name"], t["command"]) for t in json.loads(out)["tests"] if only is None or t["name"] in only]


def run_gtest(tally, suite, command, test_filter="*", environment=None, kept=None, timeout=None):
    """`command`: the program, after its emulator if there is one; `kept`: where to copy its report."""
    start = time.time()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        report = pathlib.Path(scratch) / "report.json"
        # A temporary folder per run: two suites may run at once, and a test must not find files of earlier runs.
        own_folder = pathlib.Path(scratch) / "tmp"
        own_folder.mkdir()
        code, output = run_in(own_folder, [*command, "--gtest_output=json:%s" % report, "--gtest_filter=%s" % test_filter],
                              timeout or PROGRAM_TIMEOUT_S, {"TEST_TMPDIR": str(own_folder) + "/", **(environment or {})})
        passed = failed = 0
        with contextlib.suppress(OSError, ValueError):  # the report is missing, or incomplete because the program died
            cases = [c for s in json.loads(report.read_text())["testsuites"] for c in s["testsuite"]]
            failed = sum("failures" in c for c in cases)
            passed = sum("failures" not in c and c["result"] == "COMPLETED" for c in cases)
            if kept:
                shutil.copy(report, kept)
    if code and not failed:
        failed = 1  # it crashed, or a sanitizer reported an error
    tally.add(suite, passed, failed, time.time() - start, without_passed(output)[-4000:] if failed else "")
    return failed == 0 < passed


def run_units(tally, label, folder, only=None, test_filter="*", environment=None):
    programs = unit_programs(folder, only)
    if not programs:
        tally.empty.append(label)
    # Most programs use one core, so run two at a time.
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
    """Runs the unit test programs whose bytes differ from the program that last passed, that is, those that link changed code."""
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
    """Each check of lint counts as a test."""
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
    # Counts the sanitizer's reports.
    run_units(tally, "tsan", folder, [RACES], "Races.*:%s" % ":".join("*/" + part for part in RACES_CORE))


def races(tally):
    """All checks of the kernels, whose threads are fibers of ThreadSanitizer."""
    run_units(tally, "races", build("tsan", [RACES + "_test"]), [RACES], environment={"RACES": "all"})


def make_venv(folder, requirements):
    """Makes a virtual environment with exactly the pinned packages, once for each version of the list."""
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
    """Numbers of tests, failed tests and skipped tests in a JUnit file."""
    total = bad = skipped = 0
    if report.exists():
        for node in xml.etree.ElementTree.parse(report).getroot().iter("testsuite"):
            total += int(node.get("tests"))
            bad += int(node.get("failures")) + int(node.get("errors"))
            skipped += int(node.get("skipped"))
    return total, bad, skipped


def run_pytest(tally, suite, report, words, environment=None, tries=1):
    """Runs tests in the virtual environment of the end-to-end tests; their JUnit file is written to `report`. If `tries` is more than one,
    up to MOST_AGAIN failed tests run again, without other load. The output of their first run is still printed, as it may show a rare
    fault."""
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
    builds_ahead.begin()  # also during downloads
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
    # Mutants are linked with these test programs' libraries.
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
    """The compiler of a CUDA build."""
    found = next(folder.glob("CMakeFiles/*/CMakeCUDACompiler.cmake")).read_text()
    return pathlib.Path(re.search(r'^set\(CMAKE_CUDA_COMPILER "(.*)"\)$', found, re.M).group(1))


def cuobjdump(folder):
    """cuobjdump from the toolkit, or from its wheel; nvdisasm is in the same folder."""
    beside = nvcc(folder).resolve().parent
    if (beside / "cuobjdump").exists() and (beside / "nvdisasm").exists():
        return beside / "cuobjdump"
    make_venv(CUDA_VENV, ROOT / "tests" / "requirements-cuda.txt")
    return next(CUDA_VENV.glob("lib/python3*/site-packages/nvidia/*/bin/cuobjdump"))


def cuda_for_arm(folder):
    """Compiles the host's CUDA-aware sources for an Arm host, with the options of a build; returns (names, faults)."""
    names, faults = [], []
    if not shutil.which(ARM_COMPILER):
        return names, ["%s is not there" % ARM_COMPILER]
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        source = pathlib.Path(entry["file"])
        if "-DSLUICE_CUDA" not in words or source.suffix != ".cc" or ROOT / "src" not in source.parents:
            continue
        kept = [word for word in words if re.match(r"-(D|W|std=)|-I%s" % re.escape(str(ROOT)), word)]
        # CUDA's headers are the same for both hosts; search Debian's headers after those of the cross compiler.
        system = [words[i + 1] for i, word in enumerate(words) if word == "-isystem"]
        result = run([ARM_COMPILER, "-fsyntax-only", *kept, *["-isystem" + path for path in system], "-idirafter", "/usr/include", source],
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        names.append(source.name)
        if result.returncode:
            faults.append(result.stdout)
    return names, faults


def cuda_options(release):
    """Options of the CUDA build: one architecture, and the host code of the build `release`."""
    return ["-DSLUICE_CUDA_ARCHITECTURES=%s" % CUDA_ARCHITECTURE, "-DSLUICE_PLAIN_BUILD=%s" % release]


def cuda(tally):
    """Compiles the CUDA part for one architecture, and checks the program that contains it, which starts without a GPU."""
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
    compiled = re.compile(r"\.sm_%sa?\.cubin" % CUDA_ARCHITECTURE)
    kernels = sorted((ROOT / "src" / "kernels" / "cuda").glob("*.cu"))
    for kernel in kernels:
        _, listed = output(tool, "--list-elf", next(folder.rglob(kernel.name + ".o")))
        own = ".sm_%s.cubin" % architecture_of(kernel)
        check("expected code of %s for sm_%s alone" % (kernel.name, architecture_of(kernel)), own in listed and listed.count(".sm_") == 1, listed)
    _, listed = output(tool, "--list-elf", program)
    check("expected %d files of code in the program" % len(kernels),
          len(compiled.findall(listed)) == len(kernels) == listed.count(".sm_"), listed)
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
    check("expected the kernels' source to be right for an AMD GPU, too (tools/install_packages.sh hip brings Clang 22)", code == 0, said)
    names, found = cuda_for_arm(folder)
    check("expected the host's part to compile for aarch64, too, by %s (tools/install_packages.sh arm)" % ARM_COMPILER,
          "cuda_device.cc" in names and not found, "".join(found) or names)
    if not pathlib.Path("/dev/nvidiactl").exists():
        code, said = output(program, "serve", "models/abacus", "--device", "cuda", "--port", "0")
        check("expected --device cuda to say that there is no driver", code != 0 and "driver" in said, said)
    tally.add("cuda program", total - len(faults), len(faults), time.time() - start, "\n".join(faults)[-8000:])
    check_ptx(tally, "cuda ptx")


def machine_code(tally):
    """The machine code of all kernels for all architectures; `cuda` checks one architecture."""
    run(["tools/cuda_toolkit.sh"], check=True)
    folder = build("cuda", ["sluice_cuda_kernels", "sluice_hopper_kernels"], CUDA_FOLDER + "-all")
    start = time.time()
    result = run(["tools/machine_code.py", "check", folder, "--tools", cuobjdump(folder).parent], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    kernels = re.match(r"(\d+) kernels as planned", result.stdout)
    tally.add("machine code", int(kernels.group(1)) if kernels else 0, 0 if kernels else len(result.stdout.splitlines()), time.time() - start,
              "" if kernels else result.stdout)


# The kernels' accesses to memory and uses of tensor cores; SLUICE_WRITE_COUNTS=1 writes the page again.
PTX_COUNTS = ROOT / "docs" / "cuda-memory.md"
# Seeded faults: header, original line, faulty line, and a kernel that contains it. They change no result, change host and device alike, or
# would show only on a GPU.
AWAITS = "  AwaitEarlierKernels();\n"
INPUTS = """  SLUICE_UNROLL
  for (int i = 0; i < Shape::kStages - 1; ++i) {
    if (begin + i < end) input_copier.Copy(shared + i * Shape::kStageBytes + Shape::kWeightBytes);
    AsyncCommit();
  }
"""
WARPGROUPS = "linear_f8_groups"
ENDS = "    AwaitProducts<0>();\n    PinRegisters(part);\n"
EMPTIES = "    if (threadIdx.x % 32 == 0) Arrive(ring.Empty(turn.slot));\n"
PTX_MUTANTS = [
    ("chunks of shared memory are not mixed: bank conflicts", "linear_formats.h", "return row * kRowBytes + (chunk ^ mixed) * 16;",
     "return row * kRowBytes + (chunk + 0 * mixed) * 16;", "linear_f8"),
    ("two stages in place of four", "linear_tile.h", "kMostBytes / kStageBytes > 4 ? 4 : kMostBytes / kStageBytes;", "2;", "linear_f8"),
    ("another order of NVFP4's scales", "nvf4_scales.h", "return tile + row % 32 * 16 + row % kNvF4TileRows / 32 * 4;",
     "return tile + row % 32 * 4 + row % kNvF4TileRows / 32 * 128;", "linear_nvf4"),
    ("a product that does not wait for earlier kernels", "linear_tile.h", AWAITS + INPUTS, INPUTS, "linear_f8"),
    ("a product that reads its inputs before earlier kernels have ended", "linear_tile.h", AWAITS + INPUTS, INPUTS + AWAITS, "linear_f8"),
    ("operands of a warpgroup's product without their swizzle", "warpgroup_code.h", " | kSwizzle128 << 62;", " | (kSwizzle128 & 0) << 62;", WARPGROUPS),
    ("a wait for an mbarrier that is not repeated", "warpgroup_code.h", "} while (is_over == 0);", "} while (is_over > 1);", WARPGROUPS),
    ("a warpgroup's product without a fence", WARPGROUPS + ".cu", "    FenceProducts();\n", "", WARPGROUPS),
    ("a stage that is empty before its products have ended", WARPGROUPS + ".cu", ENDS + EMPTIES, EMPTIES + ENDS, WARPGROUPS),
    ("a stage that is filled before it is empty", WARPGROUPS + ".cu", "    AwaitPhase(ring.Empty(turn.slot), turn.parity);\n", "", WARPGROUPS),
    ("an mbarrier that does not expect the inputs' bytes", WARPGROUPS + ".cu", "ArriveForBytes(full, Shape::kStageBytes);",
     "ArriveForBytes(full, Shape::kWeightBytes);", WARPGROUPS),
    ("mbarriers that copies cannot see", WARPGROUPS + ".cu", "    FenceMbarriers();\n", "", WARPGROUPS),
    ("sums of more than 128 products in the precision of tensor cores", WARPGROUPS + ".cu", ", step != 0);", ", stage != begin || step != 0);", WARPGROUPS),
    ("a tile of inputs that is copied before earlier kernels have ended", WARPGROUPS + ".cu", "  AwaitEarlierKernels();\n  for (int i = 0; i < ahead; ++i)",
     "  for (int i = 0; i < ahead; ++i)", WARPGROUPS),
]


def architecture_of(kernel):
    """What a kernel's file is compiled for: products of warpgroups are instructions of 9.0a alone."""
    return CUDA_ARCHITECTURE + ("a" if kernel.stem.endswith("_groups") else "")


def compile_ptx(compiler, kernel, folder, *first):
    """Compiled like the emulator's source: no product and sum are fused unless the source says so."""
    return run([compiler, "-ptx", "-std=c++20", "-fmad=false", "-arch=compute_%s" % architecture_of(kernel), *first, "-I%s" % (ROOT / "src"), kernel,
                "-o", "%s/%s.ptx" % (folder, kernel.stem)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check_counts(tally, suite, page):
    """Compares the kernels' counted accesses to memory with the page."""
    if os.environ.get("SLUICE_WRITE_COUNTS"):
        shutil.copy(page, PTX_COUNTS)
    start = time.time()
    found, expected = (path.read_text().splitlines() if path.exists() else [] for path in (page, PTX_COUNTS))
    unlike = ["%s has\n  %s" % (name, line) for name, lines, others in ((PTX_COUNTS.name, expected, found), ("the PTX", found, expected))
              for line in lines if line not in others]
    good = sum(line in expected for line in found if line.startswith("| `"))
    if unlike:
        unlike.append("if that is as it should be: SLUICE_WRITE_COUNTS=1 tests/run.py cuda")
    tally.add(suite + " counts", good, len(unlike), time.time() - start, "\n".join(unlike))


def check_mutants(tally, program, compiler, folder):
    """Each seeded fault must change the kernels' accesses to memory, or their results."""
    start = time.time()
    faults = []

    def counted(name):
        page = folder / "mutant.md"
        page.unlink(missing_ok=True)
        code, output = run_in(folder, [program, folder, "--counts=%s" % page, "linear"], PROGRAM_TIMEOUT_S, {})
        return code, page.read_text() if page.exists() else output

    code, usual = counted("none")
    if code:
        faults.append("without a fault: %s" % usual[-2000:])
    for what, header, line, fault, kernel in PTX_MUTANTS:
        source = ROOT / "src" / "kernels" / "cuda" / (kernel + ".cu")
        text = (source.parent / header).read_text()
        changed = folder / "changed" / "kernels" / "cuda" / header
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(text.replace(line, fault))
        right = (folder / (kernel + ".ptx")).read_bytes()
        compiled = compile_ptx(compiler, changed if header == source.name else source, folder, "-I%s" % (folder / "changed"))
        if text.count(line) != 1 or compiled.returncode:
            faults.append("%s: the line is not there once, or does not compile:\n%s" % (what, compiled.stdout))
        elif counted(what) == (code, usual):
            faults.append("%s: not found" % what)
        changed.unlink()
        (folder / (kernel + ".ptx")).write_bytes(right)
    tally.add("ptx mutants", 1 + len(PTX_MUTANTS) - len(faults), len(faults), time.time() - start, "\n".join(faults))


def hip(tally):
    """Checks the machine code of the kernels for AMD GPUs, and the program on emulated GPUs of a fake HIP runtime."""
    run(["tools/install_packages.sh", "hip"], check=True)
    folder = build("hip", ["sluice", "fake_hip", "hip_device_test", *["%s_test" % name for name in HIP_TESTS]])
    start = time.time()
    result = run(["tools/hip_machine_code.py", folder / "hip"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    kernels = re.match(r"(\d+) kernels as planned", result.stdout)
    tally.add("hip machine code", int(kernels[1]) if kernels else 0, 0 if kernels else len(result.stdout.splitlines()), time.time() - start,
              "" if kernels else result.stdout)
    run_gtest(tally, "hip device", [folder / "bin" / "hip_device_test"])
    fake = str(next(folder.rglob("libfake_hip.so")))
    there = {"SLUICE_HIP_RUNTIME": fake, "SLUICE_RCCL": fake, "SLUICE_TESTED_DEVICE": "hip"}
    hip_program(tally, folder / "bin" / "sluice", there)
    for name, test_filter in HIP_TESTS.items():
        run_gtest(tally, "hip %s" % name, [folder / "bin" / (name + "_test")], test_filter, there)
    with tempfile.TemporaryDirectory() as scratch:
        run_pytest(tally, "hip e2e", pathlib.Path(scratch) / "report.xml", HIP_E2E,
                   {**there, "SLUICE_BIN": str(folder / "bin"), "SLUICE_FAKE_HIP": "gfx950x4"})


def hip_program(tally, program, there):
    """Checks the program's messages without a HIP runtime, GPUs or RCCL, and runs its kernel checks for both architectures, and with
    threads in other orders."""
    start = time.time()
    faults, total = [], 0

    def expect(name, words, expected, says, **variables):
        nonlocal total
        total += 1
        result = run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PROGRAM_TIMEOUT_S,
                     env={**os.environ, **there, **variables})
        if result.returncode != expected or not re.search(says, result.stdout):
            faults.append("%s: expected exit code %d and %r, found %d:\n%s" % (name, expected, says, result.returncode, result.stdout[-LAST_WORDS:]))

    serve = ["serve", "models/abacus", "--device", "hip", "--port", "0"]
    expect("without a runtime", serve, 3, r"cannot be opened .*install AMD's driver", SLUICE_HIP_RUNTIME="/nowhere/libamdhip64.so")
    expect("without a GPU", serve, 3, r"AMD's driver shows no GPU", SLUICE_FAKE_HIP="none")
    # Before it loads the model: the weights have not reached a device.
    expect("without RCCL", [*serve, "-tp", "2"], 3, r"(?s)\A(?:(?!the weights reached the device).)*RCCL[^\n]* cannot be opened "
           r"[^\n]*install ROCm's package rccl", SLUICE_RCCL="/nowhere/librccl.so.1")
    expect("without hipBLASLt", serve, 3, r"hipBLASLt cannot be opened .*install ROCm's package hipblaslt",
           SLUICE_HIPBLASLT="/nowhere/libhipblaslt.so.1")
    expect("doctor", ["doctor"], 0, r"gpu 0 +Fake MI355X 0, .* gfx950, 256 multiprocessors")
    expect("kernel-bench", ["kernel-bench", "--device", "hip"], 3, r"emulator's speed is meaningless.*HIP runtime is a stand-in")
    with tempfile.TemporaryDirectory() as scratch:
        def digests(name, words, **variables):
            rows = pathlib.Path(scratch) / "rows.json"
            expect(name, ["selftest", "--device", "hip", "--json", rows, *words], 0, r" passed, 0 failed", **variables)
            return {(row["part"], row["operator"], row["shape"]): row["digest"] for row in json.loads(rows.read_text())["rows"]}

        def same_on(name, other, parts):
            nonlocal total
            total += 1
            compared = {row: digest for row, digest in other.items() if row[0] in parts}
            unlike = [row for row, digest in compared.items() if whole[row] != digest]
            if unlike or not compared:
                faults.append("%s: expected the same bits, found others in %s" % (name, unlike[:5]))

        whole = digests("selftest", [])
        parts = [word for part in HIP_PARTS for word in ("--part", part)]
        same_on("gfx942", digests("selftest on gfx942", parts, SLUICE_FAKE_HIP="gfx942"), ["attention"])
        for architecture in ("gfx942", "gfx950"):
            found = digests("hipBLASLt on " + architecture, ["--part", "library"], SLUICE_FAKE_HIP=architecture,
                            SLUICE_HIPBLASLT=there["SLUICE_HIP_RUNTIME"])
            total += 1
            if len(found) < LEAST_LIBRARY_ROWS:
                faults.append("hipBLASLt on %s: expected %d rows of products, found %d" % (architecture, LEAST_LIBRARY_ROWS, len(found)))
        for order in ("reverse", "1"):
            same_on("another order of threads: " + order, digests("selftest in order " + order, parts, SLUICE_FAKE_HIP_ORDER=order), HIP_PARTS)
    tally.add("hip program", total - len(faults), len(faults), time.time() - start, "\n".join(faults))


def check_ptx(tally, suite, *words):
    """Runs the kernels' checks on nvcc's PTX, in an interpreter."""
    folder = build("release", ["ptx_test", "ptx_machine_test"])
    run_gtest(tally, suite + " instructions", [folder / "bin" / "ptx_machine_test"])
    compiler = nvcc(ROOT / "build" / CUDA_FOLDER)
    start = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        kernels = sorted((ROOT / "src" / "kernels" / "cuda").glob("*.cu"), key=lambda kernel: -kernel.stat().st_size)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            faults = [result.stdout for result in pool.map(lambda kernel: compile_ptx(compiler, kernel, scratch), kernels) if result.returncode]
        if faults:
            tally.add(suite, 0, len(faults), time.time() - start, "\n".join(faults)[-8000:])
            return
        page = pathlib.Path(scratch) / "counts.md"
        code, output = run_in(scratch, [folder / "bin" / "ptx_test", scratch, *words, *([] if words else ["--counts=%s" % page])], PROGRAM_TIMEOUT_S, {})
        if page.exists():
            check_counts(tally, suite, page)
        if "--all" in words:
            check_mutants(tally, folder / "bin" / "ptx_test", compiler, pathlib.Path(scratch))
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
    cuda_for_arm_hosts(tally)


def cuda_for_arm_hosts(tally):
    """Cross-compiles one kernel and the device's source with nvcc; each object for aarch64 must contain host code and GPU code."""
    run(["tools/cuda_toolkit.sh"], check=True)
    kernel = "src/kernels/CMakeFiles/sluice_cuda_kernels.dir/cuda/silu_mul.cu.o"
    folder = build("cuda-arm", [kernel, "sluice_device_cuda"], "cuda-arm-test", ["-DSLUICE_CUDA_ARCHITECTURES=120"])
    start = time.time()
    def words(*argv):
        return run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    faults = []
    for thing in (folder / kernel, next(folder.rglob("cuda_device.cc.o"))):
        if "AArch64" not in words("readelf", "--file-header", thing):
            faults.append("expected %s to be for aarch64" % thing.name)
    if ".sm_120.cubin" not in words(cuobjdump(folder), "--list-elf", folder / kernel):
        faults.append("expected code for sm_120 in %s" % kernel)
    tally.add("cuda for arm hosts", 3 - len(faults), len(faults), time.time() - start, "\n".join(faults))


def arm(tally):
    """Tests aarch64 under qemu. The test programs of models and engine test bit-identical answers, since over HTTP this would take half an
    hour."""
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
          "arm": arm, "races": races, "machine-code": machine_code, "ptx": ptx, "hip": hip}
# Suites whose builds run during e2e, with preset and targets.
BUILT_AHEAD = {"unit": lambda: ("release", ["all"]), "asan-core": lambda: ("asan", programs_of(ASAN_CORE)),
               "tsan-core": lambda: ("tsan", programs_of(TSAN_CORE))}
# A change must pass `test` before review, and also `more` before it is merged.
GROUPS = {"test": ["e2e", "unit"], "more": ["lint", "asan-core", "tsan-core", "cuda", "arm-compile"],
          "slow": ["unit-slow", "e2e-slow"], "sanitizers": ["asan", "tsan"]}
GROUPS["all"] = GROUPS["test"] + GROUPS["more"]


def main(words):
    if "-h" in words or "--help" in words:
        print(__doc__.strip())
        return 0
    ahead = [word.removeprefix("--ahead=") for word in words if word.startswith("--ahead=")]
    words = [word for word in words if not word.startswith("--ahead=")]
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
    # Print the faults again, for readers who see only the end of a long log.
    for suite, detail in tally.faults:
        print("failed: %s\n%s" % (suite, detail[-LAST_WORDS:]))
    for suite in tally.empty:
        print("%s ran nothing" % suite)
    print("all suites took %.0f s" % (time.time() - start))
    print("%d passed, %d failed" % (tally.passed, tally.failed + len(tally.empty)))
    return 1 if tally.failed or tally.empty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
