#!/usr/bin/env python3
"""Compares the rate of `sluice pull` with that of curl, from a hub on the loopback interface: both download the same file, alternately.

    benchmarks/download_rate.py --program build/release/bin/sluice --pairs 7

Measures the time of the whole command. curl only writes the file; sluice also computes the file's SHA-256, which takes
half a second of a second processor per gigabyte. Neither waits for the disk. A third command does both: curl, sha256sum
and sync of that file. Since the machine may do other work, runs alternate, the processor time of the command is
printed too, and the medians count.
"""
import argparse
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from loopback_hub import Repository, serving_hub  # noqa: E402

WEIGHTS = "model.safetensors"


def seconds(words, env):
    """Wall-clock time and processor time of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    result = subprocess.run(words, env=env, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit("%s failed: %s" % (words[0], result.stderr))
    took, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "bin" / "sluice"))
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--folder", help="where the files are written; a temporary folder by default")
    options = parser.parse_args()
    size, source = options.megabytes * 1_000_000, random.Random(1)
    weights = b"".join(source.randbytes(1_000_000) for _ in range(options.megabytes))
    files = {"config.json": b"{}", "tokenizer.json": b"{ }", WEIGHTS: weights}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, serving_hub({"a/b": Repository(files)}) as hub:
        env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": folder, "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1,localhost"}
        copy = os.path.join(folder, "copy")
        curl = ["curl", "--silent", "--fail", "--location", "--output", copy, "%s/a/b/resolve/main/%s" % (hub.url, WEIGHTS)]
        checked = ["sh", "-c", '"$@" && sha256sum %s && sync %s' % (copy, copy), "-", *curl]
        commands = {"curl": curl, "sluice": [options.program, "pull", "a/b"], "curl, sha256sum and sync": checked}
        ratios = {"curl": [], "curl, sha256sum and sync": []}
        for turn in range(options.pairs):
            took = {}
            names = list(commands)
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                shutil.rmtree(os.path.join(folder, "hub"), ignore_errors=True)
                pathlib.Path(copy).unlink(missing_ok=True)
                os.sync()
                took[name] = seconds(commands[name], env)
            for name, values in ratios.items():
                values.append(took[name][0] / took["sluice"][0])
            print("   ".join("%s %.0f MB/s, processor %.2f s" % (name, size / 1e6 / took[name][0], took[name][1]) for name in names), flush=True)
        for name, values in ratios.items():
            print("sluice has %.2f x the rate of %s, the median of %d (load %.1f on %d processors)"
                  % (statistics.median(values), name, len(values), os.getloadavg()[0], os.cpu_count()))


if __name__ == "__main__":
    main()
