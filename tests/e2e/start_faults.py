"""Makes each allocation, or each system call, of a thread fail once in a program that ends, or while a server starts: it ends with an
error and its exit code, or does the work as without the fault."""
import dataclasses
import errno
import json
import signal
import subprocess
import tempfile
import typing

from faults import Switch
from thread_faults import NEVER

from serving import ABACUS, Server, command, end, run, serving, wait_until_ready

# Valid exit codes: see `sluice help exit-codes`. A signal is negative.
EXIT_CODES = range(0, 8)
ALL_FAILED = 1
PATIENCE_S = 60
PROMPT = "Anna has 12 pens and buys 7."
SMALL = ("--max-model-len", 512, "--threads", 1)
BATCH = [{"custom_id": "line %d" % i, "method": "POST", "url": "/v1/completions",
          "body": {"model": "m", "prompt": PROMPT[:8 + i], "temperature": 0, "max_tokens": 2, "ignore_eos": True}} for i in range(4)]


@dataclasses.dataclass
class Outcome:
    """`found`: what the program did, by part of its work; None for a part that failed with an error of its own."""
    code: int
    found: dict
    said: str


def ranks(folder, env):
    result = run("complete", ABACUS, "-q", PROMPT, "--max-tokens", 4, "--temperature", 0, *SMALL, "-tp", 2, "--tensor-parallel-mode", "exact",
                 env=env, timeout=PATIENCE_S)
    return Outcome(result.returncode, {"answer": result.stdout} if result.returncode == 0 else {}, result.stderr)


def batch(folder, env):
    """The requests of a file, answered by a server without faults."""
    lines, answers = folder / "in.jsonl", folder / "out.jsonl"
    lines.write_text("".join(json.dumps(line) + "\n" for line in BATCH))
    answers.unlink(missing_ok=True)
    result = run("run-batch", "-i", lines, "-o", answers, "--url", env["BATCH_URL"], "--max-num-seqs", 2, env=env, timeout=PATIENCE_S)
    found = {}
    if result.returncode in (0, ALL_FAILED):
        written = [json.loads(line) for line in answers.read_text().splitlines()]
        assert len(written) == len(BATCH), written
        for asked, answer in zip(BATCH, written, strict=True):
            good = answer["response"]["status_code"] == 200
            assert answer["custom_id"] in (asked["custom_id"], "" if not good else None), answer
            found[asked["custom_id"]] = answer["response"]["body"]["choices"][0]["text"] if good else None
    return Outcome(result.returncode, found, result.stderr)


def digest(folder, env):
    """A server whose receipts name the digest of its weights, which is computed while it starts."""
    key = folder / "key"
    if not key.exists():
        assert run("receipt-key", key).returncode == 0
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        words = command("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, "--served-model-name", "m", "--receipts", key, *SMALL)
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**env})
        try:
            try:
                server = Server(process, wait_until_ready(process, log.name), log.name)
            except AssertionError:
                return Outcome(process.wait(PATIENCE_S), {}, open(log.name).read())
            body = {"model": "m", "prompt": PROMPT, "temperature": 0, "max_tokens": 4}
            status, answer = server.post("/v1/completions", body)
            assert status == 200, answer
            return Outcome(0, {"answer": answer["choices"][0]["text"], "weights": answer["receipt"]["weights"]}, server.log())
        finally:
            end(process)


@dataclasses.dataclass
class Start:
    run: typing.Callable
    threads: tuple
    has_server: bool = False  # whether the requests go to another server
    only_allocations: bool = False  # whether the threads make no call that the shim replaces


STARTS = {
    "ranks": Start(ranks, ("rank-0", "rank-1")),
    "batch": Start(batch, ("batch",), has_server=True),
    "digest": Start(digest, ("digest",), only_allocations=True),
}


def check(got, want, where):
    """Whether the fault was noticed. Parts of the work that were done are those without the fault."""
    # Known exception: if a thread cannot allocate its scratch memory at the start, a CHECK ends the process with a message.
    if got.code == -signal.SIGABRT and "CHECK" in got.said and "cannot allocate" in got.said:
        return True
    assert got.code in EXIT_CODES, "%s: exit code %d: %s" % (where, got.code, got.said[-2000:])
    assert got.code in (0, ALL_FAILED) or "error: " in got.said, "%s: exit code %d without an error: %s" % (where, got.code, got.said[-2000:])
    if got.code == 0:
        assert got.found.keys() == want.found.keys(), (where, got)
    for part, value in got.found.items():
        assert value is None or value == want.found[part], (where, part, value)
    return got.code != 0 or None in got.found.values()


def fail_each_at_start(shim, folder, name, thread, call, most):
    """Makes `most` of the calls fail that a thread makes, evenly spread, or all if they are fewer. Returns the number of calls that failed,
    and of runs that noticed it."""
    start = STARTS[name]
    if start.has_server:
        with serving(ABACUS, *SMALL) as server:
            return fail_each_with({**shim, "BATCH_URL": server.url}, folder, name, thread, call, most)
    return fail_each_with(shim, folder, name, thread, call, most)


def fail_each_with(shim, folder, name, thread, call, most):
    switch = Switch(folder / "switch", False)
    env = {"PATH": "/usr/bin:/bin", **shim, "FAULT_SWITCH": str(switch.path), "FAULT_ERRNO": str(errno.EIO)}

    def outcome(nth):
        switch.arm(call, thread, nth)
        try:
            return STARTS[name].run(folder, env)
        except subprocess.TimeoutExpired as hung:
            raise AssertionError("%s: %s %d on %s: it hangs: %s" % (name, call, nth, thread, hung.stderr)) from None

    want = outcome(NEVER)
    assert want.code == 0 and None not in want.found.values(), want
    count = switch.count()
    assert count, "no call on a thread of this name"
    tried = range(1, count + 1, -(-count // most))
    noticed = sum(check(outcome(nth), want, "%s: %s %d of %d on %s" % (name, call, nth, count, thread)) for nth in tried)
    assert not check(outcome(NEVER), want, name)
    print("%s: %d of %d calls of %s on %s failed, %d runs noticed it" % (name, len(tried), count, call, thread, noticed))
    return len(tried), noticed
