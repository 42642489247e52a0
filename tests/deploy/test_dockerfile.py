#!/usr/bin/env python3
"""Executes the steps of deploy/Dockerfile in plain Debian root folders made by debootstrap, then runs the resulting program.

For machines without a container engine. Needs root, debootstrap and a Debian mirror, and takes as long as a full build:
`make test-deploy`. A stage is a folder; its RUN steps run there under chroot with the variables and the working folder
that the file sets. SLUICE_DEBIAN_ROOT may name a root folder that debootstrap has already made; the test copies it and never
changes it.
"""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
# Empty for debootstrap's default mirror.
MIRROR = os.environ.get("SLUICE_DEBIAN_MIRROR", "")
SUITES = {"debian:12": "bookworm", "debian:12-slim": "bookworm"}


def instructions(text):
    """(word, rest) of each instruction, with continuation lines joined, without comments."""
    joined = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        joined += line
        if joined.strip():
            word, _, rest = joined.strip().partition(" ")
            yield word.upper(), rest.strip()
        joined = ""


class Stage:
    def __init__(self, folder):
        self.folder = folder
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        self.workdir = "/"
        self.entrypoint = []
        self.command = []

    def copy_to(self, folder):
        subprocess.run(["cp", "-a", "--reflink=auto", self.folder, folder], check=True)
        other = Stage(folder)
        other.environment, other.workdir = dict(self.environment), self.workdir
        other.entrypoint, other.command = list(self.entrypoint), list(self.command)
        return other

    def inside(self, path):
        """The path on this machine of a path in the image."""
        return self.folder / (pathlib.PurePosixPath(self.workdir) / path).relative_to("/")

    @contextlib.contextmanager
    def mounted(self):
        """Mounts /proc and /sys; debootstrap has made the necessary device files."""
        done = []
        try:
            for kind, name in (("proc", "proc"), ("sysfs", "sys")):
                subprocess.run(["mount", "-t", kind, "-o", "ro" if kind == "sysfs" else "rw", kind, self.folder / name], check=True)
                done.append(self.folder / name)
            yield
        finally:
            for target in done:
                subprocess.run(["umount", "--lazy", target], check=True)

    def argv(self, words):
        script = "cd %s && exec %s" % (shlex.quote(self.workdir), shlex.join(words))
        return ["chroot", str(self.folder), "/usr/bin/env", "-i", *("%s=%s" % pair for pair in self.environment.items()),
                "/bin/sh", "-c", script]

    def run(self, script):
        with self.mounted():
            subprocess.run(self.argv(["/bin/sh", "-c", script]), check=True, stdin=subprocess.DEVNULL)


class Builder:
    def __init__(self, folder):
        self.folder = folder
        self.stages = {}

    def base(self):
        """A plain root folder, made only once."""
        made = os.environ.get("SLUICE_DEBIAN_ROOT")
        if made:
            return Stage(pathlib.Path(made))
        root = self.folder / "debian"
        if not root.exists():
            subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(root), *filter(None, [MIRROR])], check=True)
        return Stage(root)

    def start(self, rest):
        words = rest.split()
        name = words[2] if len(words) == 3 and words[1].upper() == "AS" else "stage-%d" % len(self.stages)
        if words[0] in self.stages:
            source = self.stages[words[0]]
        else:
            assert words[0] in SUITES, "the test knows no base image %s" % words[0]
            source = self.base()
        stage = source.copy_to(self.folder / name)
        # Container engines write both of these files.
        shutil.copy("/etc/resolv.conf", stage.folder / "etc" / "resolv.conf")
        (stage.folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        self.stages[name] = stage
        return stage

    def copy(self, stage, rest):
        words = rest.split()
        source = ROOT
        if words[0].startswith("--from="):
            source = self.stages[words.pop(0)[len("--from="):]].folder
        *names, target = words
        into = stage.inside(target)
        for name in names:
            path = source / name.lstrip("/")
            if path.is_dir():
                shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place = into / path.name if target.endswith("/") else into
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)

    def execute(self, text):
        stage = None
        for word, rest in instructions(text):
            began = time.time()
            if word == "FROM":
                stage = self.start(rest)
            elif word == "RUN":
                stage.run(rest)
            elif word == "COPY":
                self.copy(stage, rest)
            elif word == "WORKDIR":
                stage.workdir = rest
                stage.inside(".").mkdir(parents=True, exist_ok=True)
            elif word in ("ENV", "ARG"):
                name, _, value = rest.partition("=")
                stage.environment[name] = value
            elif word == "ENTRYPOINT":
                stage.entrypoint, stage.command = json.loads(rest), []
            elif word == "CMD":
                stage.command = json.loads(rest)
            elif word != "EXPOSE":
                sys.exit("the test knows no instruction %s" % word)
            print("%-10s %-90s %6.1f s" % (word, rest[:90], time.time() - began), flush=True)
        return self.stages


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def output(stage, *words):
    with stage.mounted():
        return subprocess.run(stage.argv(list(words)), check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def answers(stage, *words, ready_s=120):
    """Runs the image with these arguments, as a container engine would; returns the completion of a sum."""
    port = free_port()
    argv = stage.argv([*stage.entrypoint, *(words or stage.command), "--port", str(port)])
    with stage.mounted():
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        try:
            end = time.time() + ready_s
            while True:
                assert process.poll() is None and time.time() < end, "not ready"
                with contextlib.suppress(OSError):
                    urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=2)
                    break
                time.sleep(0.2)
            body = {"prompt": "Question: Tom has 3 apples and buys 4 more. How many apples does Tom have now?\nAnswer:",
                    "model": "/opt/sluice/models/abacus", "max_tokens": 40, "temperature": 0}
            request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]
        finally:
            process.terminate()
            process.wait(30)


def check(stages):
    passed = 0
    for name, words in (("vllm-openai", ["/opt/sluice/models/abacus"]), ("trtllm", ["/opt/sluice/models/abacus"]), ("sluice", [])):
        text = answers(stages[name], *words)
        assert "#### 7" in text, "%s answered %r" % (name, text)
        passed += 1
    # The commands of recipes inside a container.
    plain = stages["sluice"]
    assert re.search(r"\d+\.\d+", output(plain, "vllm", "--version"))
    assert "--random-input-len" in output(plain, "python", "-m", "tensorrt_llm.serve.scripts.benchmark_serving", "--help")
    assert not (plain.folder / "source").exists(), "the build's sources are in the image"
    for tool in ("curl", "pip"):
        output(plain, tool, "--version")
        passed += 1
    return passed + 3


def main():
    if os.geteuid() != 0 or (not os.environ.get("SLUICE_DEBIAN_ROOT") and shutil.which("debootstrap") is None):
        sys.exit("needs root, and debootstrap or SLUICE_DEBIAN_ROOT")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-deploy-"))
    try:
        passed = check(Builder(folder).execute(DOCKERFILE.read_text()))
    finally:
        # Never delete anything that is still mounted.
        subprocess.run(["rm", "-rf", "--one-file-system", folder])
    print("%d passed, 0 failed" % passed)


if __name__ == "__main__":
    main()
