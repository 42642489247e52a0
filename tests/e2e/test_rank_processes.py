"""Ranks that are processes, in short; tests/distributed has the rest."""
from ranks import (
    MPI,
    Stream,
    answers,
    expect_told,
    family,
    none_left,
    ranks_of,
    stop_and_tell,
)

from serving import ABACUS, serving


def test_two_processes_answer_as_one_and_a_killed_rank_is_told(abacus):
    expected = answers(abacus)
    with serving(ABACUS, "--max-model-len", 4096, "--max-num-seqs", 64, "-tp", 2, *MPI) as server:
        ranks = ranks_of(server)
        assert len(ranks) == 2
        assert answers(server) == expected
        processes = family(server.process.pid)
        stream = Stream(server)
        since = stop_and_tell(ranks[1])
        expect_told(server, stream, since, "rank 1 (process %d" % ranks[1], "has ended without a word")
        none_left(processes)
