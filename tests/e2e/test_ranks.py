"""Several ranks on a CPU give the same answers as one rank. Also checks the messages about the options."""
import json
import shutil

import pytest

from serving import ABACUS, DATA, run, serving

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
        assert "as requested: " in server.log()
        assert server.get("/health")[0] == 200


def answers_to_ids(server):
    """Sends concurrent prompts of token ids that are longer than the window of the model's layers, and then one of them again with its
    prefix in the cache."""
    prompts = [[3 + (7 * i + start) % 120 for i in range(length)] for start, length in ((1, 90), (5, 41), (9, 7), (1, 90))]
    fields = {"max_tokens": 24, "temperature": 0, "logprobs": 3, "ignore_eos": True, "return_token_ids": True}
    found = []
    for batch in (prompts[:3], prompts[3:]):
        status, answer = server.post("/v1/completions", {"prompt": batch, **fields})
        assert status == 200, answer
        found += [(choice["token_ids"], choice["logprobs"]["token_logprobs"]) for choice in answer["choices"]]
    return found


@pytest.mark.parametrize("name, cuts", [("tiny-gemma4-shared", (["-tp", 2], ["-tp", 3], ["-pp", 2], ["-tp", 2, "-pp", 3])),
                                        ("tiny-gemma4-experts", (["-tp", 2], ["-pp", 2], ["-tp", 2, "-pp", 2]))])
def test_layers_that_differ_are_divided(name, cuts, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(DATA / "checkpoints" / name, folder)
    shutil.copy(DATA / "checkpoints" / "tiny-bert" / "tokenizer.json", folder)  # any tokenizer: requests and answers are ids
    flags = [folder, "--max-model-len", 256, "--max-num-batched-tokens", 64, "--max-num-seqs", 4]
    with serving(*flags) as server:
        expected = answers_to_ids(server)
    assert expected[0] == expected[3]
    for cut in cuts:
        with serving(*flags, *cut, *EXACT) as server:
            assert answers_to_ids(server) == expected, cut


def test_a_cpu_decides_how_many_ranks_there_are(expected):
    with serving(ABACUS, "-tp", 8, "-pp", 2) as server:
        assert answers(server) == expected
        log = server.log()
        assert " WARN engine tensor_parallel_size 8 and pipeline_parallel_size 2: " in log
        assert "answers have the same bits for every number of ranks" in log


@pytest.mark.parametrize("flags, says", [
    (["-tp", "5", *EXACT], "tensor_parallel_size 5: the model has 4 query heads to divide; lower it to at most 4"),
    (["-pp", "9", *EXACT], "pipeline_parallel_size 9: the model has 4 layers to divide; lower it to at most 4"),
    (["-tp", "5", "--device", "emulated"], "tensor_parallel_size 5: the model has 4 query heads to divide; lower it to at most 4"),
    (["-pp", "5", "--device", "emulated"], "pipeline_parallel_size 5: the model has 4 layers to divide; lower it to at most 4"),
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


def test_inspect_works_out_a_step_on_accelerators():
    """Checks the bytes over links. Per row and layer: the results of attention and MLP in BF16, and of both sublayers in F32. Per row:
    embedding and logits."""
    config = json.loads((ABACUS / "config.json").read_text())
    layer = 2 * config["num_attention_heads"] * config["head_dim"] + 2 * config["intermediate_size"] + 8 * config["hidden_size"]
    row = config["num_hidden_layers"] * layer + 4 * (config["hidden_size"] + config["vocab_size"])
    words = ["inspect", str(ABACUS), "-tp", "4", "-dp", "2", "--device-kind", "h200", "--step-sequences", "8"]
    step = json.loads(run(*words, "--json").stdout)["step"]
    assert step["num_devices"] == 8 and step["link_exchanges"] == 4 * config["num_hidden_layers"] + 2
    assert step["link_bytes_per_token"] == row and step["link_bytes_per_token_and_device"] == row * 3 / 4
    assert step["link_latency_seconds"] == pytest.approx(step["link_exchanges"] * 10e-6)
    assert step["link_bytes_seconds"] == pytest.approx(4 * row * 3 / 4 / 450e9)
    assert step["bound"] == "link latency"
    slow = json.loads(run(*words, "--link-bandwidth", "0.001", "--link-latency", "0", "--json").stdout)["step"]
    assert slow["bound"] == "link bandwidth" and slow["link_bytes_seconds"] == pytest.approx(4 * row * 3 / 4 / 1e6)
    text = run(*words).stdout
    assert "A decoding step of 8 sequences of 1024 tokens on 8 H200 (tp 4, pp 1, dp 2), at least" in text
    assert "bound by link latency" in text
    refused = run("inspect", str(ABACUS), "--device-kind", "abacus")
    assert refused.returncode != 0 and "--device-kind abacus: expected one of H100, H200" in refused.stderr
