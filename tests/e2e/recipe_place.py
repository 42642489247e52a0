"""An environment to run a recipe: a folder, a model cache, stand-ins for missing programs, a separate network."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from serving import ABACUS, BIN, DATA, PATIENCE_S, ROOT

RECIPES = DATA / "recipes"
FENCE = re.compile(r"^[ ]*```")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# The variables that a recipe inherits from the caller's shell; others (PORT, MODEL) could affect its scripts.
INHERITED = {"HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SLUICE_CPU_ISA",
             "SLUICE_HIP_RUNTIME", "SLUICE_FAKE_HIP"}
# Brings up the loopback interface of a new network namespace, without the program ip.
LOOPBACK_UP = """import fcntl, socket, struct
s = socket.socket(); name = b"lo"
flags, = struct.unpack_from("16xh", fcntl.ioctl(s, 0x8913, struct.pack("16sh14x", name, 0)))
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", name, flags | 1))"""


def group_runs(group):
    """Whether a process of this group runs. Ignores zombies, which remain in a container without an init process."""
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text(errors="replace").rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue  # the process has ended
        if int(its_group) == group and state not in "ZX":
            return True
    return False


class Block:
    def __init__(self, line, language, text):
        self.line, self.language, self.text = line, language, text

    def code(self):
        """The block's lines without comments and empty lines."""
        return [line.strip() for line in self.text.splitlines() if line.strip() and not line.strip().startswith("#")]

    def is_options(self):
        return bool(self.code()) and self.code()[0].startswith("--")

    def is_shell(self):
        """Whether the block consists of commands, judging by its first word; others are output or files."""
        if self.language not in ("", "bash", "shell", "sh"):
            return False
        first = (self.code() or [""])[0]
        return bool(re.match(r"(\./|[A-Za-z_]+=|(git|docker|curl|vllm|trtllm-serve|pip3?|python3?|lm_eval|export|cat|cd|echo|df|"
                             r"nvidia-smi|[A-Z_]+)\b(?!:))", first)) or self.is_options()


def blocks(number):
    """The code blocks of a recipe, in order."""
    path = next(RECIPES.glob("%03d-*.md" % number))
    found, opened = [], None
    for line_number, line in enumerate(path.read_text().splitlines(), 1):
        if FENCE.match(line):
            if opened is None:
                opened = (line_number + 1, line.strip()[3:], line.index("`"), [])
            else:
                found.append(Block(opened[0], opened[1], "".join(text + "\n" for text in opened[3])))
                opened = None
        elif opened is not None:
            opened[3].append(line[min(opened[2], len(line) - len(line.lstrip())):])
    return found


def block_at(number, line):
    return next(block for block in blocks(number) if block.line == line)


class Place:
    def __init__(self, folder, models, compute_capability):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "server.log"
        for name, checkpoint in models.items():
            self.add_model(name, checkpoint)
        self.stand_in("nvidia-smi", "echo %s" % compute_capability)
        for pip in ("pip", "pip3"):
            self.stand_in(pip, 'echo "$*" >> %s' % (folder / "pip.log"))
        (self.bin / "python").symlink_to(sys.executable)
        inherited = {name: value for name, value in os.environ.items() if name in INHERITED}
        self.environment = {**inherited, "PATH": "%s:%s:%s" % (self.bin, BIN, os.environ["PATH"]), "HF_HOME": str(folder / "hf"),
                            "HF_TOKEN": "x", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
                            "PYTHONPATH": str(BIN.parent / "python")}
        self.inside, self.keeper = self.own_network()

    def add_model(self, name, checkpoint):
        repo = self.folder / "hf" / "hub" / ("models--" + name.replace("/", "--"))
        (repo / "refs").mkdir(parents=True)
        (repo / "snapshots").mkdir()
        (repo / "blobs").mkdir()
        (repo / "refs" / "main").write_text(COMMIT)
        snapshot = repo / "snapshots" / COMMIT
        snapshot.mkdir()
        # Test checkpoints without a tokenizer were made with the tokenizer of llama-bf16.
        folders = [checkpoint] if (checkpoint / "tokenizer.json").exists() else [checkpoint, DATA / "checkpoints" / "llama-bf16"]
        for folder in folders:
            for path in folder.iterdir():
                if folder == checkpoint or path.name.startswith(("tokenizer", "chat_template", "special_tokens")):
                    shutil.copyfile(path, repo / "blobs" / path.name)
                    (snapshot / path.name).symlink_to("../../blobs/" + path.name)

    def stand_in(self, name, script):
        path = self.bin / name
        path.write_text("#!/bin/sh\n%s\n" % script)
        path.chmod(0o755)

    def add_lm_eval(self, num_questions=40):
        """Installs the real lm_eval, with the bundled model's sums as gsm8k, since the published data set would have to be downloaded."""
        rows = (ABACUS / "heldout.jsonl").read_text().splitlines(keepends=True)[:num_questions]
        (self.folder / "sums.jsonl").write_text("".join(rows))
        tasks = self.folder / "tasks"
        tasks.mkdir()
        task = (DATA / "lm_eval" / "sums.yaml").read_text()
        (tasks / "gsm8k.yaml").write_text(task.replace("DATA/", str(self.folder) + "/").replace("abacus_sums", "gsm8k")
                                          .replace("num_fewshot: 2", "num_fewshot: 5"))
        self.stand_in("lm_eval", 'exec %s "$@" --include_path %s' % (ROOT / ".venv-lm-eval" / "bin" / "lm_eval", tasks))

    def own_network(self):
        """A command prefix for a separate network, so that a recipe's ports are free; empty if that is not allowed."""
        for user in ([], ["--user", "--map-root-user"]):
            keeper = subprocess.Popen(["unshare", "--net", *user, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL)
            keeper.stdin.write(b"x\n")
            with contextlib.suppress(BrokenPipeError):
                keeper.stdin.flush()
            if not keeper.stdout.readline():
                keeper.wait()
                continue
            inside = ["nsenter", "--net", "--target", str(keeper.pid), *(["--user", "--preserve-credentials"] if user else [])]
            subprocess.run([*inside, sys.executable, "-c", LOOPBACK_UP], check=True)
            return inside, keeper
        return [], None

    def close(self):
        if self.keeper is not None:
            self.keeper.stdin.close()
            self.keeper.wait()

    def shell(self, script, timeout=PATIENCE_S):
        return subprocess.run([*self.inside, "bash", "-c", script], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def run(self, script, timeout=PATIENCE_S):
        """The output of a block that must succeed."""
        result = self.shell(script, timeout)
        assert result.returncode == 0, "exit %d\n%s\n%s" % (result.returncode, result.stdout[-2000:], result.stderr[-2000:])
        return result.stdout

    def python(self, script, timeout=PATIENCE_S):
        result = subprocess.run([*self.inside, sys.executable, "-c", script], cwd=self.folder, env=self.environment,
                                capture_output=True, text=True, timeout=timeout)
        assert result.returncode == 0, result.stderr[-2000:]
        return result.stdout

    @contextlib.contextmanager
    def launched(self, script, url):
        """Runs a launch block unchanged, including `&`, until the server reports that it is ready; stops the server at the end."""
        with open(self.log, "w") as log:
            process = subprocess.Popen([*self.inside, "bash", "-c", script], cwd=self.folder, env=self.environment, stdout=log,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            end = time.monotonic() + PATIENCE_S
            while "Application startup complete" not in self.log.read_text(errors="replace"):
                # The block does not notice when a server in the background ends.
                stopped = process.poll() not in (None, 0) or re.search(r"^error: ", self.log.read_text(errors="replace"), re.M)
                assert not stopped and time.monotonic() < end, self.log.read_text()[-3000:]
                time.sleep(0.05)
            assert self.run("curl -s -o /dev/null -w '%%{http_code}' %s/health" % url) == "200"
            yield
        finally:
            # The block's shell may have ended while the server still runs in its process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            end = time.monotonic() + 60
            while group_runs(process.pid) and time.monotonic() < end:
                time.sleep(0.05)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def place(folder, models, compute_capability="10.0"):
    made = Place(pathlib.Path(folder), models, compute_capability)
    try:
        yield made
    finally:
        made.close()


def smaller(script, **numbers):
    """Replaces the sizes in a benchmark command."""
    for flag, number in numbers.items():
        script, count = re.subn(r"(--%s[ =])\S+" % flag.replace("_", "-"), r"\g<1>%d" % number, script)
        assert count, flag
    return script


def example(number, word):
    """The example answer in a recipe that contains `word`."""
    return next(json.loads(b.text) for b in blocks(number) if b.text.lstrip().startswith('{"') and word in b.text)


def missing(want, got, path="$"):
    """The path of a key of `want` that is missing in `got` or has another type there; None if there is no such key. null in `want`
    matches anything, since newer versions return a value."""
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return path
        problems = [path + "." + k if k not in got else missing(want[k], got[k], path + "." + k) for k in want]
        return next((p for p in problems if p), None)
    if isinstance(want, list):
        return (missing(want[0], got[0], path + "[0]") if got else path) if want and isinstance(got, list) else None
    if want is None:
        return None
    number = (int, float)
    return None if isinstance(got, type(want)) or (isinstance(want, number) and isinstance(got, number)) else path


def table_lines(text):
    """The separator lines and labels of a benchmark's table, in order. Lower case, since the spelling of "Total Token" differs between
    versions."""
    table = re.search(r"^=+ Serving Benchmark Result =+$.*?^=+$", text, re.S | re.M)
    lines = [line.rstrip() for line in (table[0] if table else "").splitlines()]
    return [(line if re.fullmatch(r"[-=].*[-=]", line) else line.split(":")[0] + ":").lower() for line in lines]


def lacks(want, got):
    """The first line of `want` that `got` does not contain in the same order; None if it contains all lines."""
    rest = iter(got)
    return next((line for line in want if line not in rest), None)
