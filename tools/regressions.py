#!/usr/bin/env python3
"""Finds code that became slower; run it before a release. Compares with benchmarks/regressions.json: the instructions of hot paths on
the host, which callgrind counts, and the times of kernels relative to the BF16 kernel of the same size.

Usage: tools/regressions.py [--write] [--build build/release] [--only instructions|kernels] [NAME...]

The figure of a case is the instructions of 2n runs minus those of n runs. It does not depend on the machine's load, but on its compiler
and libraries, so the file names them. Ratios of kernels are for one instruction set each and need idle cores: each time is the minimum
of several repetitions in random order. Exit status 1: a figure exceeds the stored one by more than its tolerance. --write stores the
measured figures.
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE = os.path.join(ROOT, "benchmarks", "regressions.json")
# Number of runs of each case, large enough to outweigh variations of the instruction count.
CASES = {"scheduler-step": 50, "sample-greedy": 3, "sample-top-p": 3, "encode": 5, "stream-token": 500, "read-request": 20}
TOLERANCE = {"instructions": 0.03, "kernels": 0.15}
# A format's kernel; PLAIN is its BF16 counterpart.
KERNEL = re.compile(r"linear_(\w+)_2048x8192/(M\d+)/(\w+)")
PLAIN = "linear_2048x8192/%s/%s"
ROWS = ("M1", "M32", "M512")
# Measured in addition to this machine's best instruction set, for users with other machines.
OTHER_ISAS = ("avx2_vnni", "avx512_vnni")


def instructions(program, case, count):
    with tempfile.NamedTemporaryFile() as out:
        result = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out.name, program, case, str(count)],
                                capture_output=True, text=True, check=False)
        found = re.search(r"Collected : (\d+)", result.stderr)
        if result.returncode != 0 or not found:
            sys.exit("%s %s under valgrind: %s" % (program, case, result.stderr.strip()[-500:]))
        return int(found.group(1))


def count_instructions(program, wanted):
    figures = {}
    for case, count in CASES.items():
        if wanted and case not in wanted:
            continue
        once, twice = (instructions(program, case, times * count) for times in (1, 2))
        figures[case] = (twice - once) // count
    return figures


def measure_kernels(program, repetitions, wanted):
    """By name: the kernel's minimum time / the BF16 kernel's minimum time."""
    names = subprocess.run([program, "--benchmark_list_tests"], capture_output=True, text=True, check=True).stdout.split()
    names = [name[:-len("/real_time")] if name.endswith("/real_time") else name for name in names]
    isas = [name.rsplit("/", 1)[1] for name in names if name.startswith("linear_2048x8192/")]
    measured = {*isas[-1:], *OTHER_ISAS}
    pairs = {}
    for name in names:
        found = KERNEL.fullmatch(name)
        if found and found.group(2) in ROWS and found.group(3) in measured and (not wanted or name in wanted):
            pairs[name] = PLAIN % found.groups()[1:]
    if not pairs:
        return {}
    every = sorted(set(pairs) | set(pairs.values()))
    pattern = "^(%s)(/real_time)?$" % "|".join(re.escape(name) for name in every)
    result = subprocess.run([program, "--benchmark_filter=" + pattern, "--benchmark_format=json", "--benchmark_min_time=0.05",
                             "--benchmark_repetitions=%d" % repetitions, "--benchmark_enable_random_interleaving=true"],
                            capture_output=True, text=True, check=True)
    least = {}
    for run in json.loads(result.stdout)["benchmarks"]:
        if run.get("run_type") == "aggregate":
            continue
        name = run["run_name"].removesuffix("/real_time")
        least[name] = min(least.get(name, float("inf")), run["real_time"])
    return {name: round(least[name] / least[plain], 3) for name, plain in pairs.items()}


def compare(kind, figures, stored):
    """Prints one line per figure. Returns the names of the figures that became worse."""
    worse = []
    for name, figure in figures.items():
        known = stored.get(name)
        change = "new" if not known else "%+.1f %%" % (100 * (figure / known - 1))
        is_worse = bool(known) and figure > known * (1 + TOLERANCE[kind])
        if is_worse:
            worse.append(name)
        print("%-44s %14s %14s  %s%s" % (name, known if known else "-", figure, change, "  WORSE" if is_worse else ""))
    return worse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--only", choices=["instructions", "kernels"])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    stored = {}
    if os.path.exists(FILE):
        with open(FILE, encoding="utf-8") as file:
            stored = json.load(file)
    elif not options.write:
        sys.exit("no figures are stored: %s does not exist. Store them where nothing is known to be slow: tools/regressions.py --write" %
                 os.path.relpath(FILE, ROOT))
    programs = {"instructions": "host_paths", "kernels": "kernels_benchmark"}
    kinds = [options.only] if options.only else list(programs)
    worse = []
    for kind in kinds:
        program = os.path.join(options.build, "bin", programs[kind])
        if kind == "instructions":
            figures = count_instructions(program, options.names)
        else:
            figures = measure_kernels(program, options.repetitions, options.names)
        known = stored.get(kind, {})
        if not options.write and not figures.keys() & known.keys():
            sys.exit("%s: none of the %d figures that were measured is stored in %s: --write stores them" %
                     (kind, len(figures), os.path.relpath(FILE, ROOT)))
        worse += compare(kind, figures, known)
        stored.setdefault(kind, {}).update(figures)
    if options.write:
        compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=False).stdout.splitlines()[:1]
        stored["from"] = {"compiler": compiler[0] if compiler else "?", "machine": platform.machine()}
        with open(FILE, "w", encoding="utf-8") as file:
            json.dump(stored, file, indent=1, sort_keys=True)
            file.write("\n")
    elif worse:
        sys.exit("%d worse: %s. If it has to be so, store the new figures with --write" % (len(worse), ", ".join(worse)))


if __name__ == "__main__":
    main()
