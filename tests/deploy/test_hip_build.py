#!/usr/bin/env python3
"""Runs `make build-hip` in a Debian root folder that has only the packages of packages.txt, and starts the program.

For machines without a container engine. Needs root, debootstrap (or SLUICE_DEBIAN_ROOT, a root folder that it has made) and a Debian
mirror, and takes as long as a full build: `make test-hip-build`. HIP_ARCHITECTURES=gfx950 compiles for one kind of GPU in half the time.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "deploy"))
from test_dist import Checks  # noqa: E402
from test_dockerfile import Builder  # noqa: E402

SOURCE = "/source"
PROGRAM = SOURCE + "/build/hip/bin/sluice"
# The suites of the image debian:12; debootstrap's root has only the first, and Clang 22 is an update.
SOURCES = "".join("deb http://deb.debian.org/%s main\n" % suite
                  for suite in ("debian bookworm", "debian bookworm-updates", "debian-security bookworm-security"))
# The certificates that this machine trusts, for example of a proxy for PyPI.
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
# Packages to run make and to download a pinned source; no compiler.
FIRST = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends make git ca-certificates"


def copy_sources(folder):
    """The files of the working tree that git tracks or would track."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def said_by(stage, *words):
    with stage.mounted():
        result = subprocess.run(stage.argv(list(words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    return result.returncode, result.stdout


def check(checks, stage, architectures):
    copy_sources(stage.folder / SOURCE[1:])
    (stage.folder / "etc" / "apt" / "sources.list").write_text(SOURCES)
    stage.workdir = SOURCE
    stage.run(FIRST)
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, stage.folder / CERTIFICATES.relative_to("/"))
        stage.environment["PIP_CERT"] = str(CERTIFICATES)
    began = time.time()
    stage.run("make build-hip" + (" HIP_ARCHITECTURES=" + architectures if architectures else ""))
    print("built in %.0f s" % (time.time() - began), flush=True)
    rocm = [name for name in ("opt/rocm", "usr/include/hip", "usr/bin/hipcc") if (stage.folder / name).exists()]
    checks.check("nothing of ROCm is there", not rocm, rocm)
    _, linked = said_by(stage, "ldd", PROGRAM)
    checks.check("the program links to no library of AMD", not re.search(r"hip|hsa|rocm|not found", linked), linked)
    code, said = said_by(stage, PROGRAM, "version")
    checks.check("version", code == 0, said)
    code, said = said_by(stage, PROGRAM, "serve", "models/abacus", "--device", "hip", "--port", "0")
    checks.check("serve --device hip says what is missing", code == 3 and re.search(r"libamdhip64\.so.* install AMD's driver", said), said)
    code, said = said_by(stage, "/usr/bin/python3", "tools/hip_machine_code.py", "build/hip/hip")
    checks.check("the machine code is as planned", architectures or (code == 0 and re.match(r"\d+ kernels as planned", said)), said)


def main():
    if os.geteuid() != 0 or (not os.environ.get("SLUICE_DEBIAN_ROOT") and shutil.which("debootstrap") is None):
        sys.exit("needs root, and debootstrap or SLUICE_DEBIAN_ROOT")
    checks = Checks()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-hip-build-"))
    try:
        check(checks, Builder(folder).start("debian:12 AS hip"), os.environ.get("HIP_ARCHITECTURES", ""))
    finally:
        # Never delete anything that is still mounted.
        subprocess.run(["rm", "-rf", "--one-file-system", folder])
    print("%d passed, %d failed" % (checks.passed, checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
