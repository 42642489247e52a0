#!/usr/bin/env python3
"""Checks the tree: format, Python, includes between folders, throwing calls of std::filesystem, generated pages, locks, clang-tidy.

Usage: tools/lint.py [--all | --changed] [CHECK...]    checks: format ruff includes filesystem comments pages locks tidy

clang-tidy checks at most 16 sources that differ from the merge base with origin/main or, if that is HEAD, from HEAD~20. With --all it
checks every source. With --changed, checks of files look only at uncommitted changes or, without any, at the last commit; checks without
files are skipped. Exits with 1 if a check found something.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# A build folder that is only configured, for its compile commands: one per source, not in unity batches.
BUILD = ROOT / "build" / "lint"
LINT_VENV = ROOT / ".venv-lint"
MAX_TIDY_FILES = 16
# Folders whose locks Clang's -Wthread-safety checks: all that start threads, except the tools around the engine.
LOCKED_FOLDERS = ["base", "parallel", "cache", "engine", "server", "client"]
# Also finds views of temporaries, which GCC misses.
CLANG_WARNINGS = ["-Wthread-safety", "-Wdangling", "-Werror=thread-safety", "-Werror=dangling"]
CPP = (".h", ".cc", ".cu")


def output(*argv):
    return subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def listed(*argv):
    return [line for line in subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines() if line]


def changed_since():
    """The commit against which files count as changed."""
    head = listed("git", "rev-parse", "HEAD")[0]
    base = output("git", "merge-base", "HEAD", "origin/main")
    if base.returncode == 0 and base.stdout.strip() != head:
        return base.stdout.strip()
    before = output("git", "rev-parse", "--verify", "--quiet", "HEAD~20")
    return before.stdout.strip() if before.returncode == 0 else head


def tracked(suffixes, only=None):
    return [name for name in listed("git", "ls-files") if name.endswith(suffixes) and (ROOT / name).exists() and
            (only is None or name in only)]


def changed(base):
    """Files that differ from commit `base`, including uncommitted and new ones."""
    return set(listed("git", "diff", "--name-only", "--diff-filter=d", base) + listed("git", "ls-files", "--others", "--exclude-standard"))


def in_parallel(command, names, batch=1):
    """Runs `command(names)` for batches of names, on all cores. Returns the outputs of those that failed."""
    batches = [names[i:i + batch] for i in range(0, len(names), batch)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(command, batches))
    return "".join(result.stdout for result in results if result.returncode)


def check_format(names):
    names = [name for name in names if name.startswith("src/")]
    found = in_parallel(lambda batch: output("clang-format", "--dry-run", "-Werror", *batch), names, 20)
    differ = sorted(set(re.findall(r"^(src/[^:]+):", found, re.M)))
    return found and "\n".join([*differ, "run `make format`"]) + "\n"


def check_ruff(names):
    result = output(LINT_VENV / "bin" / "ruff", "check", "--no-cache", "--quiet", *names)
    return result.stdout if result.returncode else ""


def check_includes():
    result = output(sys.executable, "tools/check_includes.py")
    return result.stdout if result.returncode else ""


def check_filesystem():
    result = output(sys.executable, "tools/check_filesystem.py")
    return result.stdout if result.returncode else ""


def check_comments():
    result = output(sys.executable, "tools/check_comments.py")
    return result.stdout if result.returncode else ""


def check_pages():
    result = output("tools/generate_docs.sh", "--check")
    return result.stdout if result.returncode else ""


@functools.cache
def compile_commands():
    """The arguments and working folder of each source that a build compiles, by its path from the root."""
    configured = output("cmake", "--preset", "release", "-B", BUILD, "-DSLUICE_UNITY=OFF", "-DCMAKE_CXX_COMPILER_LAUNCHER=")
    if configured.returncode:
        sys.exit(configured.stdout)
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT):
            commands[str(path.relative_to(ROOT))] = (shlex.split(entry["command"]), entry["directory"])
    return commands


def check_locks():
    """Clang's check of the mutexes (base/mutex.h) in sources and headers; the sources of a folder in batches, as in the build."""
    commands = compile_commands()
    keep = ("-D", "-I", "-std")

    def flags_of(name):
        argv, _ = commands[name]
        for i, word in enumerate(argv):
            if argv[i - 1] == "-isystem":
                yield "-isystem" + word
            elif word.startswith(keep):
                yield word

    def look(batch):
        folder = commands[batch[0]][1]
        flags = dict.fromkeys(flag for name in batch for flag in flags_of(name))
        return subprocess.run(["clang++-19", *flags, "-fsyntax-only", *CLANG_WARNINGS, "-x", "c++", "-"],
                              input="".join('#include "%s"\n' % (ROOT / name) for name in batch),
                              cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    found = ""
    for locked in LOCKED_FOLDERS:
        names = [name for name in sorted(commands) if name.split("/")[1] == locked and not name.endswith(("_test.cc", "_testing.cc"))]
        found += in_parallel(look, names, 10)
    return found


def check_tidy(names):
    commands = compile_commands()
    names = [name for name in names if name in commands]
    return in_parallel(lambda batch: output("clang-tidy-19", "--quiet", "--extra-arg=-w", "-p", BUILD, *batch), names)


def main(words):
    if "-h" in words or "--help" in words:
        print(__doc__)
        return 0
    every = "--all" in words
    only = (changed("HEAD") or changed("HEAD~1")) if "--changed" in words else None
    sources = tracked((".cc",), None if every else only if only is not None else changed(changed_since()))
    wanted = [word for word in words if not word.startswith("--")]
    cpp, python = tracked(CPP, only), tracked((".py",), only)
    checks = {
        "format": (check_format, cpp),
        "ruff": (check_ruff, python),
        "includes": (check_includes, None),
        "filesystem": (check_filesystem, None),
        "comments": (check_comments, None),
        "pages": (check_pages, None),
        "locks": (check_locks, None if only is None or any(name.split("/")[1] in LOCKED_FOLDERS for name in cpp) else []),
        "tidy": (check_tidy, sources if every else sources[:MAX_TIDY_FILES]),
    }
    unknown = [word for word in wanted if word not in checks]
    if unknown:
        print("unknown check %s: one of %s" % (unknown[0], ", ".join(checks)))
        return 2
    if len(sources) > MAX_TIDY_FILES and not every and (not wanted or "tidy" in wanted):
        print("lint tidy      looks at %d of %d changed sources; --all looks at every one" % (MAX_TIDY_FILES, len(sources)), flush=True)
    failed = 0
    for name, (check, names) in checks.items():
        if wanted and name not in wanted or names == []:
            continue
        start = time.time()
        found = check() if names is None else check(names)
        failed += bool(found)
        print("lint %-10s %s  (%.1f s%s)" % (name, "found:" if found else "ok", time.time() - start,
                                           ", %d files" % len(names) if names else ""), flush=True)
        if found:
            print(found[-8000:], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
