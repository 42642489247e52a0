"""Ranks on several machines, simulated by network namespaces: how they connect, and what happens when one of them fails. Needs root."""
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from ranks import TOLD_S, family, listening, none_left, shown_of

from serving import ABACUS, ROOT, command, serving, wait_until

numbers = itertools.count()
FLAGS = ("--max-model-len", 512, "--max-num-seqs", 8)


def sh(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


class Machine:
    def __init__(self, name, address):
        self.name, self.address = name, address

    def start(self, *words, log, env=None):
        """Starts a process in this machine's network namespace, without access to the caller's network."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *map(str, words)], stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})

    def curl(self, path, port=8000):
        """(status, text) of a request from inside the machine; status 0 if nobody answers."""
        program = ("import sys, urllib.request, urllib.error\n"
                   "try: r = urllib.request.urlopen(sys.argv[1], timeout=2); print(r.status, r.read().decode())\n"
                   "except urllib.error.HTTPError as e: print(e.code, e.read().decode())\n"
                   "except OSError as e: print(0, e)\n")
        out = subprocess.run(["ip", "netns", "exec", self.name, "python3", "-c", program, "http://127.0.0.1:%d%s" % (port, path)],
                             capture_output=True, text=True, check=True).stdout
        status, _, text = out.partition(" ")
        return int(status), text


@pytest.fixture(scope="module")
def machines():
    """Two machines with a cable between them."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    own = "slc%d" % (os.getpid() % 100000)
    two = [Machine("%s-%d" % (own, i), "10.55.0.%d" % (i + 1)) for i in range(2)]
    for machine in two:
        sh("ip", "netns", "add", machine.name)
    try:
        sh("ip", "link", "add", "eth0", "netns", two[0].name, "type", "veth", "peer", "name", "eth0", "netns", two[1].name)
        for machine in two:
            inside = ("ip", "-n", machine.name)
            sh(*inside, "addr", "add", machine.address + "/24", "dev", "eth0")
            sh(*inside, "link", "set", "eth0", "up")
            sh(*inside, "link", "set", "lo", "up")
        yield two
    finally:
        for machine in two:
            sh("ip", "netns", "del", machine.name)


class Group:
    """The processes of a model on its machines, from their start."""

    def __init__(self, machines, folder, flags=(), secrets=("a", "a"), wait=True, commands=None, env=None, first=None, number=0):
        """If `machines` is only a part of the group: `first` is the group's first machine, `number` the index of machines[0] in the
        group."""
        self.logs = [folder / ("log-%d-%d" % (next(numbers), i)) for i in range(len(machines))]
        self.machines = machines
        self.processes = []
        for i, (machine, secret, log) in enumerate(zip(machines, secrets, self.logs)):
            words = commands[i] if commands else command(
                "serve", ABACUS, *FLAGS, "--host", "127.0.0.1", "--port", 8000, "--served-model-name", "m", "-tp", 2, "--nnodes", 2,
                "--node-rank", number + i, "--master-addr", (first or machines[0]).address, *flags)
            with open(log, "w") as file:
                self.processes.append(machine.start(*words, log=file, env={"SLUICE_DISTRIBUTED_SECRET": secret, **(env or {})}))
        self.started = time.monotonic()
        if wait:
            wait_until(self.is_ready, self.log)
            self.family = [pid for process in self.processes for pid in [process.pid, *family(process.pid)]]

    def is_ready(self):
        assert all(process.poll() is None for process in self.processes), self.log()
        return self.machines[0].curl("/health")[0] == 200

    def log(self):
        return "\n".join(log.read_text() for log in self.logs)

    def codes(self, seconds=60):
        end = time.monotonic() + seconds
        return [process.wait(max(0.1, end - time.monotonic())) for process in self.processes]

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                process.kill()


@contextlib.contextmanager
def group(machines, folder, **kw):
    it = Group(machines, folder, **kw)
    try:
        yield it
    finally:
        it.close()


def ask(machine, prompt):
    body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 3, "ignore_eos": True})
    program = ("import sys, urllib.request\n"
               "r = urllib.request.Request('http://127.0.0.1:8000/v1/completions', sys.argv[1].encode(), {'Content-Type': 'application/json'})\n"
               "print(urllib.request.urlopen(r, timeout=60).read().decode())\n")
    out = subprocess.run(["ip", "netns", "exec", machine.name, "python3", "-c", program, body], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["choices"][0]


def test_two_machines_answer_as_one(machines, tmp_path):
    prompt = "Anna has 12 pens and buys 7."
    with serving(ABACUS, *FLAGS) as server:
        expected = server.complete(prompt, max_tokens=12, logprobs=3, ignore_eos=True)
    with group(machines, tmp_path) as two:
        print("served %.2f s after the last machine's start" % (time.monotonic() - two.started))
        got = ask(machines[0], prompt)
        assert (got["text"], got["logprobs"]) == (expected["text"], expected["logprobs"])
        two.processes[0].terminate()
        assert two.codes() == [0, 0], two.log()
        none_left(two.family)


STRANGERS = """
import socket, sys, time
held = []
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    try:
        held.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), 1))
        if len(held) % 4 == 3:
            held[-1].sendall(b"half of a proof")
    except OSError:
        pass
    if len(held) == 20:
        print("all", flush=True)
    time.sleep(0.01 if len(held) < 20 else 0.5)
"""


def test_m04_v07_silent_strangers_do_not_keep_a_group_from_forming(machines, tmp_path):
    """Twenty connections from each machine that send nothing, or half of a proof, before the group forms and while it does."""
    flags = ("--distributed-timeout-seconds", 60)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(tmp_path / "strangers", "w"))
        strangers = [machine.start(sys.executable, "-c", STRANGERS, machines[0].address, 29501, 60, log=log) for machine in machines]
        for stranger in strangers:
            stack.callback(stranger.wait)
            stack.callback(stranger.kill)
        first = Group(machines[:1], tmp_path, flags=flags, wait=False)
        stack.callback(first.close)
        wait_until(lambda: (tmp_path / "strangers").read_text().count("all") == 2, "the strangers do not come", 30)
        since = time.monotonic()
        second = Group(machines[1:], tmp_path, flags=flags, wait=False, first=machines[0], number=1)
        stack.callback(second.close)
        wait_until(first.is_ready, lambda: first.log() + second.log(), 60)
        print("served %.2f s after the second machine's start" % (time.monotonic() - since))
        assert time.monotonic() - since < 15
        first.processes[0].terminate()
        assert first.codes() == [0] and second.codes() == [0]


def test_m05_only_the_given_addresses_listen(machines, tmp_path):
    """Each machine has a second address. Nothing listens on it, except the server if --host names it."""
    for i, machine in enumerate(machines):
        sh("ip", "-n", machine.name, "addr", "add", "10.66.%d.1/32" % i, "dev", "lo")
    try:
        with group(machines, tmp_path) as two:
            for i, machine in enumerate(machines):
                pid = two.processes[i].pid
                found = listening([pid, *family(pid)])
                print(sorted(found))
                assert {address for address, _, _ in found} <= {machine.address, "127.0.0.1", "::1"}, found
                assert any(address == machine.address for address, _, _ in found), found
                assert "listen for " in two.logs[i].read_text() and "at %s alone" % machine.address in two.logs[i].read_text()
    finally:
        for i, machine in enumerate(machines):
            sh("ip", "-n", machine.name, "addr", "del", "10.66.%d.1/32" % i, "dev", "lo")


def test_m05_the_first_machine_waits_at_the_given_address(machines, tmp_path):
    words = command("serve", ABACUS, "-tp", 2, "--nnodes", 2, "--port", 8000, "--distributed-timeout-seconds", 20)
    for flags, address in ((["--master-addr", "127.0.0.1"], "127.0.0.1"), ([], machines[0].address)):
        with group(machines[:1], tmp_path, wait=False, commands=[[*words, *flags]]) as one:
            found = wait_until(lambda: listening([one.processes[0].pid]), one.log, 30)
            assert found == {(address, 29501, "sluice")}
            one.processes[0].terminate()
            assert one.codes(10) == [128 + signal.SIGTERM]
    unknown = [*words[:-1], "1", "--master-addr", "no-such-machine.invalid"]
    with group(machines[:1], tmp_path, wait=False, commands=[unknown]) as one:
        assert one.codes(30) == [5]
        assert "--master-addr: no-such-machine.invalid: " in one.log()
    with group(machines[:1], tmp_path, wait=False, commands=[[*words, "--master-addr", "10.55.0.9"]]) as one:
        assert one.codes(30) == [2]
        assert "10.55.0.9 is no address of this machine, which has %s" % machines[0].address in one.log()


def test_a07_secrets_are_shown_on_neither_machine(machines, tmp_path):
    env = {"HF_TOKEN": "canary-of-the-hub", "VLLM_API_KEY": "canary-of-the-environment"}
    with group(machines, tmp_path, secrets=("canary", "canary"), flags=("--hf-token", "canary-of-the-line"), env=env) as two:
        for process in two.processes:
            below = family(process.pid)
            assert below
            for pid in below:
                assert b"canary" not in shown_of(pid), shown_of(pid)


NONSENSE = """
import random, socket, sys
random.seed(1)
for port in map(int, sys.argv[2:]):
    for size in (0, 1, 64, 600, 70000):
        with socket.create_connection((sys.argv[1], port), 5) as stranger:
            try:
                stranger.sendall(random.randbytes(size))
                stranger.settimeout(0.3)
                stranger.recv(100)
            except OSError:
                pass
"""


def test_m04_v07_nonsense_on_the_channels_of_open_mpi(machines, tmp_path):
    """A stranger in the group's network connects to each port of mpirun, its daemon and the ranks, and sends random bytes.
    The group continues with the same answers."""
    prompt = "Anna has 12 pens and buys 7."
    with group(machines, tmp_path) as two:
        expected = ask(machines[0], prompt)
        for i, machine in enumerate(machines):
            pid = two.processes[i].pid
            for address, port, name in sorted(listening([pid, *family(pid)])):
                if address != machine.address:
                    continue
                subprocess.run(["ip", "netns", "exec", machines[1 - i].name, sys.executable, "-c", NONSENSE, address, str(port)], timeout=60)
                print("%s at port %d: %s" % (name, port, [process.poll() for process in two.processes]))
                assert ask(machines[0], prompt) == expected, two.log()
        two.processes[0].terminate()
        assert two.codes() == [0, 0], two.log()


@pytest.mark.parametrize("victim", ["worker", "orted"])
def test_m01_m02_a_machine_that_is_lost_ends_the_group(machines, tmp_path, victim):
    with group(machines, tmp_path) as two:
        below = {name: pid for pid in family(two.processes[1].pid)
                 for name in [open("/proc/%d/comm" % pid).read().strip()]}
        # `ip netns exec` has replaced itself by the program.
        os.kill(two.processes[1].pid if victim == "worker" else below["orted"], signal.SIGKILL)
        since = time.monotonic()
        wait_until(lambda: machines[0].curl("/health")[0] != 200, two.log, TOLD_S)
        assert time.monotonic() - since < TOLD_S
        codes = two.codes()
        assert codes[0] != 0 and codes[1] != 0, (codes, two.log())
        none_left(two.family)


def test_f09_m01_a_cable_that_is_cut_ends_both(machines, tmp_path):
    with group(machines, tmp_path) as two:
        sh("ip", "-n", machines[1].name, "link", "set", "eth0", "down")
        try:
            since = time.monotonic()
            told = wait_until(lambda: machines[0].curl("/health") if machines[0].curl("/health")[0] != 200 else None, two.log, TOLD_S + 1)
            assert time.monotonic() - since < TOLD_S, told
            codes = two.codes()
            assert codes[0] != 0 and codes[1] != 0, (codes, two.log())
            none_left(two.family)
        finally:
            sh("ip", "-n", machines[1].name, "link", "set", "eth0", "up")


def test_v07_another_secret_is_refused_on_both(machines, tmp_path):
    with group(machines, tmp_path, secrets=("a", "b"), wait=False, flags=("--distributed-timeout-seconds", 5)) as two:
        codes = two.codes(30)
        assert codes[0] != 0 and codes[1] == 2, codes
        assert "has a different secret" in two.logs[0].read_text() and "has a different secret" in two.logs[1].read_text()


def test_a_machine_that_does_not_come_is_named(machines, tmp_path):
    with group(machines, tmp_path, wait=False, flags=("--distributed-timeout-seconds", 2), commands=[
            command("serve", ABACUS, "-tp", 2, "--nnodes", 2, "--distributed-timeout-seconds", 2, "--port", 8000), ["true"]]) as two:
        assert two.codes(30)[0] == 5
        assert "--node-rank 1 did not connect" in two.logs[0].read_text()


def test_m03_settings_that_do_not_fit_are_refused(machines, tmp_path):
    with group(machines, tmp_path, wait=False, flags=("--distributed-timeout-seconds", 4), commands=[
            command("serve", ABACUS, "-tp", 2, "--nnodes", 2, "--distributed-timeout-seconds", 4, "--port", 8000),
            command("serve", ABACUS, "-tp", 4, "--nnodes", 2, "--node-rank", 1, "--master-addr", machines[0].address)]) as two:
        assert two.codes(30)[1] == 2
        assert "its options specify 2 machines and 4 ranks" in two.logs[1].read_text()
    for flags, words in ((["--nnodes", 3, "-tp", 2], "cannot be divided evenly"), (["--nnodes", 2, "-tp", 2, "--node-rank", 2], "--node-rank"),
                         (["--nnodes", 2, "-tp", 2], "needs a secret")):
        env = {} if "secret" in words else {"SLUICE_DISTRIBUTED_SECRET": "a"}
        result = subprocess.run(command("serve", ABACUS, *flags), capture_output=True, text=True, env={**os.environ, **env}, timeout=60)
        assert result.returncode == 2 and words in result.stderr, result.stderr


def test_f09_a_slow_cable_slows_the_step_by_its_exchanges():
    """A program that relays frames acts as the cable, since not every kernel has netem. Its delay is slightly longer than requested."""
    script = ROOT / "benchmarks" / "ranks.py"
    done = subprocess.run([sys.executable, script, "slow-cable"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    rows = re.findall(r"(\d+) us: a step of ([0-9.]+) ms; (-?[0-9.]+) ms more, ([0-9.]+) by", done.stdout)
    assert [int(row[0]) for row in rows] == [1, 1000, 3000]
    for _, _, grown, expected in rows[1:]:
        assert 0.9 * float(expected) < float(grown) < 1.6 * float(expected), done.stdout


def test_the_compose_file_of_two_machines_serves(machines, tmp_path):
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((ROOT / "deploy" / "compose.two-nodes.yaml").read_text())["services"]
    names = {"first": machines[0].address, "/opt/sluice/models/abacus": str(ABACUS)}
    commands = [[names.get(word, word) for word in services[name]["command"]] for name in ("first", "second")]
    for words in commands:
        assert words[0] == "sluice"
        words[0] = command()[0]
    assert all("SLUICE_DISTRIBUTED_SECRET" in services[name]["environment"] for name in services)
    with group(machines, tmp_path, commands=commands) as two:
        two.processes[0].terminate()
        assert two.codes() == [0, 0]


def test_the_leader_worker_set_serves(machines, tmp_path):
    yaml = pytest.importorskip("yaml")
    document = next(yaml.safe_load_all((ROOT / "deploy" / "leaderworkerset.yaml").read_text()))
    template = document["spec"]["leaderWorkerTemplate"]
    commands = []
    for role, index in (("leaderTemplate", 0), ("workerTemplate", 1)):
        (container,) = template[role]["spec"]["containers"]
        assert container["command"] == ["sh", "-c"]
        (script,) = container["args"]
        script = script.replace("/models/model", str(ABACUS)).replace("sluice serve", command()[0] + " serve")
        commands.append(["env", "LWS_WORKER_INDEX=%d" % index, "sh", "-c", script])
    env = {"LWS_GROUP_SIZE": str(template["size"]), "LWS_LEADER_ADDRESS": machines[0].address}
    with group(machines, tmp_path, commands=commands, env=env) as two:
        # If a pod ends, the whole group ends and is started again.
        two.processes[1].kill()
        codes = two.codes()
        assert codes[0] != 0
        none_left(two.family)
