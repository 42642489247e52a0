"""Short tests of ranks as processes. tests/distributed contains the detailed tests."""
import json
import socket

import pytest
from ranks import (
    MPI,
    Stream,
    answers,
    expect_told,
    family,
    listening,
    none_left,
    ranks_of,
    shown_of,
    stop_and_tell,
)

from serving import ABACUS, serving

FLAGS = ("--max-model-len", 4096, "--max-num-seqs", 64, "-tp", 2)


def test_m01_v07_two_processes_answer_as_one_and_a_killed_rank_is_told(abacus):
    expected = answers(abacus)
    with serving(ABACUS, *FLAGS, *MPI) as server:
        ranks = ranks_of(server)
        assert len(ranks) == 2
        assert answers(server) == expected
        processes = family(server.process.pid)
        stream = Stream(server)
        since = stop_and_tell(ranks[1])
        expect_told(server, stream, since, "rank 1 (process %d" % ranks[1], "has ended without a message")
        none_left(processes)


def test_m05_mp_is_threads_and_opens_no_port(abacus):
    expected = answers(abacus)
    with serving(ABACUS, *FLAGS, "--distributed-executor-backend", "mp", "--tensor-parallel-mode", "exact") as server:
        assert answers(server) == expected
        assert not family(server.process.pid)
        assert listening([server.process.pid]) == {("127.0.0.1", server.port, "sluice")}
        assert "2 ranks share each layer" in server.log()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_m05_processes_listen_at_the_loopback_alone(host):
    with serving(ABACUS, *FLAGS, *MPI, "--host", host) as server:
        processes = [server.process.pid, *family(server.process.pid)]
        found = listening(processes)
        assert {"mpirun", "sluice"} == {name for _, _, name in found}
        elsewhere = {socket for socket in found if socket[0] not in ("127.0.0.1", "::1")}
        assert elsewhere == (set() if host == "127.0.0.1" else {(host, server.port, "sluice")})
        assert "listen for each other only at 127.0.0.1" in server.log()


def test_m04_strangers_at_the_launcher_change_nothing(abacus):
    """Strangers on this machine connect to mpirun's own ports and send nonsense, or nothing."""
    expected = answers(abacus)
    with serving(ABACUS, *FLAGS, *MPI) as server:
        places = [(address, port) for address, port, name in listening(family(server.process.pid)) if name == "mpirun"]
        assert places
        strangers = []
        for place in places:
            for words in (b"", b"\0" * 600, b"\xff" * 600, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
                stranger = socket.create_connection(place, 5)
                if words:
                    stranger.sendall(words)
                strangers.append(stranger)
        assert answers(server) == expected
        for stranger in strangers:
            stranger.close()
        assert answers(server) == expected
        assert server.stop() == 0


def test_a07_secrets_are_not_shown_by_ranks():
    """Keys and tokens from the command line and the environment are not visible in any child process, but rank 0 still uses them."""
    env = {"HF_TOKEN": "canary-of-the-hub", "VLLM_API_KEY": "canary-of-the-environment", "SLUICE_DISTRIBUTED_SECRET": "canary-of-the-group"}
    with serving(ABACUS, *FLAGS, *MPI, "--api-key", "canary-one", "canary-two", "--hf-token=canary-three", env=env) as server:
        for pid in family(server.process.pid):
            assert b"canary" not in shown_of(pid), shown_of(pid)
        body = {"model": "m", "prompt": "Tom has", "max_tokens": 2}
        for key, status in (("canary-one", 200), ("canary-two", 200), ("canary-three", 401), ("canary-of-the-environment", 401)):
            got = server.request("POST", "/v1/completions", body, headers={"Authorization": "Bearer " + key})
            assert got[0] == status, (key, got)
    with serving(ABACUS, *FLAGS, *MPI, env=env) as server:
        assert all(b"canary" not in shown_of(pid) for pid in family(server.process.pid))
        got = server.request("POST", "/v1/completions", body, headers={"Authorization": "Bearer canary-of-the-environment"})
        assert got[0] == 200, json.dumps(got[2].decode())
