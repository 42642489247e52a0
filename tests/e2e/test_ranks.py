"""Several ranks on a CPU: the answers of one, and what is said of the options."""
import json

import pytest

from serving import ABACUS, run, serving

EXACT = ["--tensor-parallel-mode", "exact"]
PROMPTS = ["12 + 30 =", "Tom has 3 apples and buys 4 more. How many apples has Tom?", "7"]
ASKED = [{"temperature": 0, "logprobs": 4}, {"temperature": 0.9, "seed": 5, "logprobs": 2, "n": 2}]


def answers(server):
    found = []
    for prompt in PROMPTS:
        for fields in ASKED:
            status, answer = server.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 24, "ignore_eos": True, **fields})
            assert status == 200, answer
            found.append(answer["choices"])
    return found


@pytest.fixture(scope="module")
def expected(abacus):
    return answers(abacus)


@pytest.mark.parametrize("flags", [["-tp", 2], ["-tp", 3], ["-tp", 4], ["-pp", 3], ["-tp", 2, "-pp", 2]])
def test_answers_are_those_of_one_rank(expected, flags):
    with serving(ABACUS, *flags, *EXACT) as server:
        assert answers(server) == expected
        assert "as asked: " in server.log()
        assert server.get("/health")[0] == 200


def test_a_cpu_decides_how_many_ranks_there_are(expected):
    with serving(ABACUS, "-tp", 8, "-pp", 2) as server:
        assert answers(server) == expected
        log = server.log()
        assert " WARN engine tensor_parallel_size 8 and pipeline_parallel_size 2: " in log
        assert "answers have the same bits for every number of ranks" in log


@pytest.mark.parametrize("flags, says", [
    (["-tp", "5", *EXACT], "tensor_parallel_size 5: the model has 4 query heads to divide; lower it to at most 4"),
    (["-pp", "9", *EXACT], "pipeline_parallel_size 9: the model has 4 layers to divide; lower it to at most 4"),
    (["-tp", "2", "--device", "emulated"], "tensor_parallel_size 2: emulated alone computes a model"),
])
def test_what_cannot_be_is_refused(flags, says):
    done = run("serve", str(ABACUS), *flags)
    assert done.returncode != 0 and says in done.stdout + done.stderr


def test_inspect_shows_what_each_rank_holds():
    done = run("inspect", str(ABACUS), "-tp", "3", "-pp", "2", "--json")
    report = json.loads(done.stdout)
    ranks = report["ranks"]
    assert [rank["stage"] for rank in ranks] == [0, 0, 0, 1, 1, 1]
    for key in ("hidden_rows", "mlp_rows", "q_heads"):
        parts = [rank[key] for rank in ranks[:3]]
        assert parts[0][0] == 0 and all(a[1] == b[0] for a, b in zip(parts, parts[1:]))
    assert ranks[0]["layers"] == [0, 2] and ranks[5]["layers"] == [2, 4]
    held = sum(rank["weight_bytes"] for rank in ranks)
    assert report["memory"]["weight_bytes"] <= held < 1.1 * report["memory"]["weight_bytes"]
    assert "ranks" not in json.loads(run("inspect", str(ABACUS), "--json").stdout)
