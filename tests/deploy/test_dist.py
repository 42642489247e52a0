#!/usr/bin/env python3
"""Unpacks the archive of `make dist` in a root folder that contains only glibc's libraries, and runs the program there.

Usage: test_dist.py FOLDER [MACHINE]    tests the archives in FOLDER for that processor architecture, by default this machine's
Needs root, for chroot: `make test-dist`. The root folder has no shell, no /dev and no environment, and only the part of /proc that the
loader needs to find a program's path. A program that runs there runs on every Linux with that glibc. For aarch64 on another machine,
glibc comes from build/arm-sysroot, and qemu runs the program.
"""
import contextlib
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

# The parts of glibc: libraries that programs link to, and the loaders.
GLIBC = ["libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2"]
LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
ARM_SYSROOT = pathlib.Path(__file__).resolve().parents[2] / "build" / "arm-sysroot"
# A static binary: it needs nothing from the root folder that it is copied to.
EMULATOR = pathlib.Path("/usr/bin/qemu-aarch64-static")
TIMEOUT_S = 300


def make_root(folder, machine):
    """Copies glibc to where the loader looks for it, and the emulator if the architecture is not this machine's."""
    emulated = machine != platform.machine()
    top = ARM_SYSROOT if emulated else pathlib.Path("/")
    for name in [LOADERS[machine], *("lib/%s-linux-gnu/%s" % (machine, name) for name in GLIBC)]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(top / name, target)
    (folder / "tmp").mkdir()
    (folder / "proc").mkdir()
    if emulated:
        shutil.copy(EMULATOR, folder)
    return emulated


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, good, detail=""):
        self.passed += bool(good)
        self.failed += not good
        print("%s  %s%s" % ("ok    " if good else "FAILED", what, "" if good else ": %s" % str(detail)[-2000:]), flush=True)


class Root:
    def __init__(self, folder, home, emulated):
        self.folder, self.home, self.emulated = folder, home, emulated

    def argv(self, *words):
        program = "%s/bin/%s" % (self.home, words[0])
        emulator = ["/" + EMULATOR.name, "-0", program] if self.emulated else []
        return ["/usr/sbin/chroot", str(self.folder), *emulator, program, *words[1:]]

    def run(self, *words):
        return subprocess.run(self.argv(*words), env={}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=TIMEOUT_S)


def ask(url, body=None):
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def serve(checks, root, log):
    with open(log, "wb") as out:
        server = subprocess.Popen(root.argv("vllm", "serve", "%s/models/abacus" % root.home, "--host", "127.0.0.1", "--port", "0"),
                                  env={}, stdout=out, stderr=subprocess.STDOUT)
    try:
        url, end = None, time.time() + TIMEOUT_S
        while not url and server.poll() is None and time.time() < end:
            time.sleep(0.1)
            found = re.search(r"at (http://127\.0\.0\.1:\d+), ready", log.read_text(errors="replace"))
            url = found and found.group(1)
        checks.check("vllm serve becomes ready", url, log.read_text(errors="replace"))
        if url:
            model = ask(url + "/v1/models")["data"][0]["id"]
            prompt = "Question: Tom has 3 apples and buys 4 more. How many apples does Tom have now?\nAnswer:"
            answer = ask(url + "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 40, "temperature": 0})
            checks.check("it answers", "#### 7" in answer["choices"][0]["text"], answer)
            server.terminate()
            checks.check("it ends when asked", server.wait(timeout=60) == 0, log.read_text(errors="replace"))
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


@contextlib.contextmanager
def proc_in(folder):
    subprocess.run(["mount", "-t", "proc", "-o", "ro", "proc", folder / "proc"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder / "proc"], check=True)


def use(checks, archive, machine):
    print(archive.name)
    with tempfile.TemporaryDirectory(prefix="sluice-dist-") as scratch, contextlib.ExitStack() as stack:
        folder = pathlib.Path(scratch) / "root"
        emulated = make_root(folder, machine)
        stack.enter_context(proc_in(folder))
        place = folder / "somewhere else"  # the distribution is relocatable
        place.mkdir()
        subprocess.run(["tar", "--extract", "--file", archive.resolve(), "--directory", place], check=True)
        (name,) = [entry.name for entry in place.iterdir()]
        root = Root(folder, "/somewhere else/" + name, emulated)
        result = root.run("sluice", "version", "--json")
        checks.check("sluice version", result.returncode == 0 and json.loads(result.stdout), result.stdout)
        result = root.run("sluice", "doctor")
        checks.check("sluice doctor", result.returncode == 0 and "cpu" in result.stdout.lower(), result.stdout)
        if name.endswith("-cuda"):
            checks.check("doctor speaks of GPUs", "CUDA" in result.stdout, result.stdout)
            result = root.run("sluice", "selftest", "--device", "emulated", "--part", "memory")
            checks.check("the emulated device passes", result.returncode == 0, result.stdout)
            result = root.run("sluice", "serve", "%s/models/abacus" % root.home, "--device", "cuda", "--port", "0")
            checks.check("without a driver, --device cuda says so", result.returncode != 0 and "driver" in result.stdout, result.stdout)
        result = root.run("trtllm-serve", "--help")
        checks.check("trtllm-serve --help", result.returncode == 0 and result.stdout, result.stdout)
        serve(checks, root, pathlib.Path(scratch) / "log")


def main(words):
    if len(words) not in (1, 2):
        sys.exit(__doc__)
    machine = words[1] if words[1:] else platform.machine()
    archives = sorted(pathlib.Path(words[0]).glob("sluice-*-linux-%s*.tar.xz" % machine))
    checks = Checks()
    for archive in archives:
        use(checks, archive, machine)
    print("%d passed, %d failed" % (checks.passed, checks.failed + (not archives)))
    return 1 if checks.failed or not archives else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
