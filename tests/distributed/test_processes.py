"""Ranks as processes on one machine: equal answers, and what happens when one is lost or unlike."""
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time

import pytest
from ranks import (
    MPI,
    TOLD_S,
    Stream,
    answers,
    children,
    expect_told,
    family,
    name_of,
    none_left,
    ranks_of,
    stop_and_tell,
)

from serving import ABACUS, DATA, command, serving, wait_until

CHECKPOINTS = DATA / "checkpoints"
# Prompts are tokens here: whose words they are is no matter.
SMALL = ("--tokenizer", CHECKPOINTS / "llama-bf16", "--max-model-len", 512, "--max-num-batched-tokens", 64, "--max-num-seqs", 8)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# A refusal, from the start of the command.
REFUSED_S = 30


@contextlib.contextmanager
def two_ranks(*flags):
    with serving(ABACUS, "--max-model-len", 4096, "-tp", 2, *MPI, *flags) as server:
        processes = family(server.process.pid)
        yield server
    none_left(processes)


def refused(*words, code=None, env=None, argv=None):
    """What a command says that must not come to serve."""
    start = time.monotonic()
    result = subprocess.run(argv or command("serve", *words), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
                            env={**os.environ, **(env or {})})
    assert time.monotonic() - start < REFUSED_S
    assert result.returncode == code if code else result.returncode, result.stderr
    return result.stderr


@pytest.mark.parametrize("folder", ["llama-bf16", "qwen3-modelopt-fp8", "llama4-modelopt-nvfp4", "qwen3-moe-quark-mxfp4", "qwen3-llmc-int8-w8a8"])
def test_answers_are_equal_bit_by_bit(folder):
    rng = random.Random(folder)
    prompts = [[rng.randrange(100) for _ in range(length)] for length in (5, 33, 90, 130)]
    prompts += [prompts[2][:64] + [7, 8, 9]]
    with serving(CHECKPOINTS / folder, *SMALL) as server:
        expected = answers(server, prompts)
    for cut in (["-tp", 2], ["-tp", 3], ["-pp", 2], ["-tp", 2, "-pp", 2]):
        with serving(CHECKPOINTS / folder, *SMALL, *cut, *MPI) as server:
            assert answers(server, prompts) == expected, cut


def test_mpirun_of_the_user_is_recognised(abacus_answers):
    with serving_under("mpirun", "--oversubscribe", "-n", "2") as server:
        assert answers(server) == abacus_answers
        ranks = ranks_of(server)
        stream = Stream(server)
        since = stop_and_tell(ranks[1])
        expect_told(server, stream, since, "rank 1 (process %d" % ranks[1])
        none_left(ranks)


@pytest.fixture(scope="module")
def abacus_answers():
    with serving(ABACUS) as server:
        return answers(server)


@contextlib.contextmanager
def serving_under(*launcher):
    import serving as helpers
    plain = helpers.command
    helpers.command = lambda *words, **kw: [*launcher, *plain(*words, **kw)]
    try:
        with serving(ABACUS, "-tp", 2, env=AS_ROOT) as server:
            yield server
    finally:
        helpers.command = plain


@pytest.mark.parametrize("busy", [True, False])
def test_a_stopped_rank_is_noticed_by_its_silence(busy):
    with two_ranks() as server:
        rank = ranks_of(server)[1]
        stream = Stream(server) if busy else None
        since = stop_and_tell(rank, signal.SIGSTOP)
        expect_told(server, stream, since, "rank 1 (process %d" % rank, "was not heard of")


def test_a_rank_that_takes_too_long_is_named():
    # Longer than the deadline of a step, and shorter than the silence of one that is lost.
    with two_ranks("--distributed-timeout-seconds", 1) as server:
        rank = ranks_of(server)[1]
        stream = Stream(server)
        since = stop_and_tell(rank, signal.SIGSTOP)
        reasons = expect_told(server, stream, since, "rank 1 did not come to")
        assert reasons and "within 1 s" in reasons[0]


def test_rank_0_is_killed():
    with two_ranks() as server:
        stream = Stream(server)
        stop_and_tell(ranks_of(server)[0])
        stream.thread.join(TOLD_S)
        assert not stream.thread.is_alive()
        assert server.process.wait(60) != 0


def test_the_parent_is_killed():
    with two_ranks() as server:
        stream = Stream(server)
        server.process.kill()
        server.process.wait()
        assert "has ended" in str(stream.error())


def test_mpirun_is_killed():
    with two_ranks() as server:
        stream = Stream(server)
        (launcher,) = [pid for pid in children(server.process.pid) if name_of(pid) == "mpirun"]
        since = stop_and_tell(launcher)
        stream.thread.join(60)
        assert time.monotonic() - since < TOLD_S
        assert server.process.wait(60) != 0


def test_a_drain_lets_answers_finish():
    with two_ranks() as server:
        stream = Stream(server, tokens=200)
        assert server.stop() == 0
        assert stream.error() is None
        assert b"[DONE]" in stream.text


def test_sighup_reloads_rank_0(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a\n")
    keys.chmod(0o600)
    with two_ranks("--api-key-file", keys) as server:
        assert server.get("/v1/models", headers={"Authorization": "Bearer b"})[0] == 401
        keys.write_text("b\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.get("/v1/models", headers={"Authorization": "Bearer b"})[0] == 200, "the keys are not read again")


def test_a_taken_port_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(ABACUS, "-tp", 2, *MPI, "--host", "127.0.0.1", "--port", port)
        assert str(port) in said


def test_more_ranks_than_heads_or_layers_are_refused():
    assert "tensor" in refused(ABACUS, "-tp", 64, *MPI)
    assert "pipeline" in refused(ABACUS, "-pp", 64, *MPI)


def test_missing_mpi_is_refused(tmp_path):
    assert "install Open MPI" in refused(ABACUS, "-tp", 2, *MPI, code=3, env={"PATH": str(tmp_path)})
    assert "SLUICE" not in refused(ABACUS, "-tp", 2, *MPI, env={"SLUICE_MPI_PLUGIN": str(tmp_path / "none.so")})
    assert "there is no MPI plugin" in refused(ABACUS, "-tp", 2, *MPI, env={"SLUICE_MPI_PLUGIN": str(tmp_path / "none.so")})


def under_mpirun(*commands):
    """Ranks whose commands differ."""
    argv = ["mpirun", "--oversubscribe", "--bind-to", "none", "-q"]
    for words in commands:
        argv += [*([":"] if len(argv) > 5 else []), "-n", "1", *command("serve", *words, "--port", 0)]
    return refused(argv=argv, env=AS_ROOT)


def test_unlike_ranks_are_refused_by_name(tmp_path):
    assert "rank 1" in under_mpirun([ABACUS, "-tp", 2], [ABACUS, "-tp", 2, "--max-model-len", 100])
    other = tmp_path / "other"
    shutil.copytree(CHECKPOINTS / "llama-bf16", other)
    said = under_mpirun([CHECKPOINTS / "llama-bf16", "-tp", 2], [CHECKPOINTS / "tiny-llama-wide", "-tp", 2])
    assert "rank 1" in said and "model files" in said
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    assert "model files" in under_mpirun([CHECKPOINTS / "llama-bf16", "-tp", 2], [other, "-tp", 2])
    said = under_mpirun([ABACUS, "-tp", 2, "--cpu-isa", "avx2"], [ABACUS, "-tp", 2, "--cpu-isa", "reference"])
    assert "rank 1" in said and "--cpu-isa" in said


def test_another_number_of_processes_is_refused():
    said = refused(argv=["mpirun", "--oversubscribe", "-q", "-n", "2", *command("serve", ABACUS, "-tp", 3, "--port", 0)], env=AS_ROOT)
    assert "the launcher started 2 processes" in said


def test_a_missing_file_on_one_rank_is_told_by_its_name(tmp_path):
    said = under_mpirun([ABACUS, "-tp", 2], [tmp_path / "none", "-tp", 2])
    assert "rank 1" in said and "none" in said
