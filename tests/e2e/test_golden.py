"""Answers of small checkpoints over HTTP, compared with float32 transformers (golden.json in each folder)."""
import json
import math

import pytest

from serving import DATA, serving

NAMES = ["llama-bf16", "llama-tied-bf16-sharded", "qwen3-bf16"]
MODES = {"float32": (["--dtype", "float32"], 1e-3), "default": ([], 3e-2)}


def token_id(key):
    return int(str(key).split(":")[-1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_logprobs_and_greedy_tokens(name, mode):
    flags, tolerance = MODES[mode]
    folder = DATA / "checkpoints" / name
    golden = json.loads((folder / "golden.json").read_text())
    compared = 0
    with serving(folder, "--max-model-len", 512, "--max-num-seqs", 4, *flags) as server:
        for case in golden["cases"]:
            choice = server.complete(case["prompt"], max_tokens=len(case["greedy"]), ignore_eos=True, logprobs=20,
                                     prompt_logprobs=20, return_tokens_as_token_ids=True)
            for position, ids, logprobs in zip(case["positions"], case["top_ids"], case["top_logprobs"]):
                want = dict(zip(ids, logprobs))
                if position + 1 < len(case["prompt"]):
                    got = {token_id(k): v["logprob"] for k, v in choice["prompt_logprobs"][position + 1].items()}
                else:
                    got = {token_id(k): v for k, v in choice["logprobs"]["top_logprobs"][0].items()}
                both = want.keys() & got.keys()
                assert len(both) >= 17, (position, want, got)
                errors = [got[t] - want[t] for t in both]
                assert math.sqrt(sum(e * e for e in errors) / len(errors)) < tolerance
                assert max(map(abs, errors)) < 4 * tolerance
            for want, margin, got in zip(case["greedy"], case["margin"], choice["logprobs"]["tokens"]):
                if margin < 2 * tolerance:
                    break  # nearly a tie: later tokens may legitimately differ
                assert token_id(got) == want
                compared += 1
    assert compared >= 10
