#!/usr/bin/env python3
"""Installs the packages of `make dist wheel deb` in Debian root folders without a compiler, and sends each installed server a request.

Usage: test_packages.py FOLDER [MACHINE]    `make test-dist`. Needs root, debootstrap (or SLUICE_DEBIAN_ROOT, a root folder that it has made)
and a Debian mirror. Packages for another processor architecture need no root folder: their files and bytes are checked, and the installed
programs start under qemu. In each root folder, the documented prerequisites are installed first. Then the test installs the package, starts
a server with a model id of a hub on the loopback interface, and sends a request. All this must take less than a minute. The test also
checks that packing one build twice gives the same bytes.
"""
import base64
import contextlib
import csv
import functools
import hashlib
import http.server
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "deploy")]
from loopback_hub import Repository, serving_hub  # noqa: E402
from test_dist import ARM_SYSROOT, Checks  # noqa: E402
from test_dockerfile import Builder, free_port  # noqa: E402

FIRST_ANSWER_S = 60
MODEL = "acme/abacus"
# The scripts that make the packages, for this machine and for Arm.
TOOLS = "tools/dist.sh", "tools/wheel.py", "tools/deb.sh"
ARM_TOOLS = "tools/dist.sh arm", "tools/wheel.py aarch64", "tools/deb.sh arm"
ARM_EMULATOR = "qemu-aarch64", "-L", ARM_SYSROOT


def run(*words, **kw):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, **kw)


def check_bytes(checks, dist, tools):
    """Packing again, with another umask and time zone, must give the same bytes."""
    before = (dist / "SHA256SUMS").read_text()
    result = run("sha256sum", "--check", "SHA256SUMS", cwd=dist)
    checks.check("SHA256SUMS is that of the files", result.returncode == 0, result.stdout)
    for tool in tools:
        result = run("sh", "-c", "umask 077; exec " + tool, cwd=ROOT, env={**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"})
        checks.check(tool + " again", result.returncode == 0, result.stdout)
    after = (dist / "SHA256SUMS").read_text()
    checks.check("the same bytes", before == after, "\n%s\n%s" % (before, after))


def check_licenses(checks, folder, *database):
    """Checks that every library in the package belongs to a Debian package whose licence is included."""
    listed = (folder / "licenses" / "THIRD_PARTY.txt").read_text()
    named = re.findall(r"\S+\.txt", listed)
    checks.check("THIRD_PARTY.txt names texts that are there", len(named) > 10 and all((folder / "licenses" / n).stat().st_size > 40 for n in named), named)
    for library in sorted((folder / "lib").glob("*.so*")):
        known = run("dpkg-query", *database, "--search", "*/%s" % library.name).stdout
        owners = set(re.findall(r"^([^:\s]+):", known, re.M))
        checks.check("the licence of " + library.name, any("  %s " % owner in listed for owner in owners), known)
    for part in ("xgrammar", "picojson", "dlpack", "libboost1.81-dev", "libexpected-dev"):
        checks.check("the licence of " + part, part in listed)


def check_records(checks, dist):
    for path in sorted(dist.glob("*.whl")):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            (record,) = [n for n in names if n.endswith(".dist-info/RECORD")]
            rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
            wrong = [n for n in names if n != record and rows.get(n) != [
                "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(archive.read(n)).digest()).rstrip(b"=").decode(), str(archive.getinfo(n).file_size)]]
        checks.check("RECORD of " + path.name, not wrong and set(rows) == set(names), wrong)


def check_wheels(checks, dist, folder):
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", venv)
    before = {p for p in venv.rglob("*") if "__pycache__" not in p.parts}

    def pip(*words):
        return run(venv / "bin" / "pip", "--disable-pip-version-check", *words)

    result = pip("install", "--no-index", "--find-links", dist, "sluice")
    checks.check("pip install sluice", result.returncode == 0, result.stdout)
    result = run(venv / "bin" / "sluice", "version", "--json")
    checks.check("sluice version", result.returncode == 0 and json.loads(result.stdout), result.stdout)
    result = run(venv / "bin" / "python", "-m", "sluice", "version")
    checks.check("python -m sluice version", result.returncode == 0 and result.stdout, result.stdout)
    checks.check("no other program's name without the extra", not list(venv.glob("bin/vllm")) + list(venv.glob("bin/trtllm*")))
    checks.check("completions are in the prefix", (venv / "share" / "bash-completion" / "completions" / "sluice").exists())
    result = pip("install", "--no-index", "--find-links", dist, "sluice[vllm]")
    checks.check("pip install sluice[vllm]", result.returncode == 0, result.stdout)
    for words in (("bin/vllm", "--version"), ("bin/trtllm-serve", "--help"), ("bin/python", "-m", "vllm.entrypoints.openai.api_server", "--help"),
                  ("bin/python", "-m", "tensorrt_llm.serve.scripts.benchmark_serving", "--help")):
        result = run(venv / words[0], *words[1:])
        checks.check(" ".join(words), result.returncode == 0 and result.stdout, result.stdout)
    result = pip("check")
    checks.check("pip check", result.returncode == 0, result.stdout)
    result = pip("uninstall", "--yes", "sluice", "sluice-vllm-names")
    left = {p for p in venv.rglob("*") if p.is_file() and "__pycache__" not in p.parts} - before
    checks.check("nothing is left of them", result.returncode == 0 and not left, sorted(left))


@contextlib.contextmanager
def serving_files(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield "http://127.0.0.1:%d" % server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def first_answer(stage, program, hub):
    """Starts a server of MODEL; returns (seconds until its first answer, the answer)."""
    began, port = time.time(), free_port()
    stage.environment.update(HF_ENDPOINT=hub.url, NO_PROXY="127.0.0.1")
    log = stage.folder / "tmp" / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(stage.argv([program, "serve", MODEL, "--port", str(port)]), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        while True:
            if process.poll() is not None or time.time() > began + 300:
                return time.time() - began, "not ready: " + log.read_text(errors="replace")
            with contextlib.suppress(OSError):
                urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=2)
                break
            time.sleep(0.1)
        body = {"model": MODEL, "prompt": "Question: Tom has 3 apples and buys 4 more. How many apples does Tom have now?\nAnswer:", "max_tokens": 40,
                "temperature": 0}
        request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, json.dumps(body).encode(), {"Content-Type": "application/json"})
        text = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]
        return time.time() - began, text
    finally:
        process.terminate()
        process.wait(60)


def check_root(checks, name, stage, hub, prepare, install, program):
    """`prepare` installs the prerequisites; only `install` is timed."""
    began = time.time()
    stage.run(prepare)
    print("        %s: made ready in %.1f s" % (name, time.time() - began), flush=True)
    compilers = [tool for tool in ("cc", "gcc", "g++", "clang", "make") if (stage.folder / "usr" / "bin" / tool).exists()]
    checks.check(name + ": there is no compiler", not compilers, compilers)
    began = time.time()
    stage.run(install)
    installed = time.time() - began
    with stage.mounted():
        answered, text = first_answer(stage, program, hub)
    checks.check("%s: the answer" % name, "#### 7" in text, text)
    checks.check("%s: installed in %.1f s, answer %.1f s later; within %d s" % (name, installed, answered, FIRST_ANSWER_S),
                 installed + answered < FIRST_ANSWER_S)


def check_roots(checks, dist, folder):
    builder = Builder(folder)
    files = {path.name: path.read_bytes() for path in (ROOT / "models" / "abacus").iterdir() if path.is_file()}
    apt = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "
    deb = deb_of(dist, dpkg_architecture())
    with serving_files(dist) as url, serving_hub({MODEL: Repository(files)}) as hub:
        stages = {name: builder.start("debian:12 AS " + name) for name in ("archive", "wheel", "deb")}
        shutil.copy(ROOT / "deploy" / "install.sh", stages["archive"].folder / "install.sh")
        for path in dist.glob("*.whl"):
            shutil.copy(path, stages["wheel"].folder / "srv")
        shutil.copy(deb, stages["deb"].folder / "srv")
        check_root(checks, "archive", stages["archive"], hub, apt + "curl xz-utils", "sh /install.sh %s /usr/local" % url, "/usr/local/bin/sluice")
        check_root(checks, "wheel", stages["wheel"], hub, apt + "python3-venv",
                   "python3 -m venv /opt/sluice && /opt/sluice/bin/pip install --quiet --no-index --find-links /srv sluice", "/opt/sluice/bin/sluice")
        stage = stages["deb"]
        check_root(checks, "deb", stage, hub, "apt-get update -qq", apt.split("&& ")[1] + "/srv/" + deb.name, "/usr/bin/sluice")
        for path in ("usr/share/bash-completion/completions/sluice", "usr/share/zsh/vendor-completions/_sluice",
                     "usr/share/fish/vendor_completions.d/sluice.fish", "lib/systemd/system/sluice.service", "usr/share/doc/sluice/copyright"):
            checks.check("deb: " + path, (stage.folder / path).exists())
        stage.run("apt-get remove -y -qq sluice")
        left = [p for p in ("usr/bin/sluice", "usr/lib/sluice", "usr/share/sluice") if (stage.folder / p).exists()]
        checks.check("deb: nothing is left of it", not left, left)


def check_arm(checks, dist, folder):
    """Installs what pip and dpkg would on an Arm machine, and starts it under qemu."""
    (wheel,) = dist.glob("sluice-*-manylinux_2_36_aarch64.whl")
    venv, place = folder / "venv", folder / "wheel"
    run(sys.executable, "-m", "venv", venv)
    words = "--disable-pip-version-check", "install", "--no-index", "--only-binary=:all:", "--platform", "manylinux_2_36_aarch64", "--target"
    result = run(venv / "bin" / "pip", *words, place, "--find-links", dist, "sluice")
    checks.check("pip install of %s" % wheel.name, result.returncode == 0, result.stdout)
    result = run(*ARM_EMULATOR, place / "sluice" / "bin" / "sluice", "version", "--json")
    checks.check("sluice version of the wheel", result.returncode == 0 and "neon" in result.stdout and json.loads(result.stdout), result.stdout)

    deb, place = deb_of(dist, "arm64"), folder / "deb"
    result = run("dpkg-deb", "--extract", deb, place)
    checks.check("dpkg-deb --extract %s" % deb.name, result.returncode == 0, result.stdout)
    result = run(*ARM_EMULATOR, place / "usr" / "bin" / "sluice", "version", "--json")
    checks.check("sluice version of it", result.returncode == 0 and "neon" in result.stdout and json.loads(result.stdout), result.stdout)
    depends = re.findall(r"([a-z0-9.+-]+) \(", run("dpkg-deb", "--field", deb, "Depends").stdout)
    known = run("dpkg-query", "--admindir=%s/var/lib/dpkg" % ARM_SYSROOT, "-W", "-f", "${Package}\n").stdout.split()
    checks.check("it depends on packages of arm64", len(depends) > 10 and set(depends) <= set(known), depends)


def dpkg_architecture():
    return run("dpkg", "--print-architecture").stdout.strip()


def deb_of(dist, architecture):
    (deb,) = dist.glob("sluice_*_%s.deb" % architecture)
    return deb


def main(words):
    dist = pathlib.Path(words[0]).resolve() if len(words) in (1, 2) else sys.exit(__doc__)
    machine = words[1] if words[1:] else platform.machine()
    emulated = machine != platform.machine()
    if not emulated and (os.geteuid() != 0 or (not os.environ.get("SLUICE_DEBIAN_ROOT") and shutil.which("debootstrap") is None)):
        sys.exit("needs root, and debootstrap or SLUICE_DEBIAN_ROOT")
    checks = Checks()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-packages-"))
    try:
        check_bytes(checks, dist, ARM_TOOLS if emulated else TOOLS)
        (tree,) = [f for f in dist.glob("sluice-*-linux-" + machine) if f.is_dir()]
        check_licenses(checks, tree, *(["--admindir=%s/var/lib/dpkg" % ARM_SYSROOT] if emulated else []))
        check_records(checks, dist)
        result = run("lintian", "--allow-root", "--fail-on", "error,warning", deb_of(dist, "arm64" if emulated else dpkg_architecture()))
        checks.check("lintian", result.returncode == 0, result.stdout)
        if emulated:
            check_arm(checks, dist, folder)
        else:
            check_wheels(checks, dist, folder)
            check_roots(checks, dist, folder)
    finally:
        # Never delete anything that is still mounted.
        subprocess.run(["rm", "-rf", "--one-file-system", folder])
    print("%d passed, %d failed" % (checks.passed, checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
