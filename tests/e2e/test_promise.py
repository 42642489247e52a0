"""The CPU promise: same tokens and bit-equal logprobs whatever else runs and however the prompt was cut."""
import random

import pytest

from serving import ABACUS, at_once, serving

RANDOM = random.Random(7)
PROMPTS = ["Tom has %d apples and buys %d more. " % (RANDOM.randint(2, 99), RANDOM.randint(2, 99)) * RANDOM.randint(1, 40)
           for _ in range(8)]
FLAGS = {
    "chunks of 7": ["--max-num-batched-tokens", 7, "--max-num-seqs", 4, "--no-enable-prefix-caching"],
    "chunks of 64": ["--max-num-batched-tokens", 64, "--max-num-seqs", 16, "--no-enable-prefix-caching"],
    "prefix cache": ["--enable-prefix-caching"],
    "one thread": ["--threads", 1, "--no-enable-prefix-caching"],
    # Blocks for about a third of the prompts: sequences are preempted and computed again.
    "preemption": ["--num-gpu-blocks-override", 64, "--max-model-len", 1000, "--no-enable-prefix-caching"],
}


def ask(server, prompt, seed):
    choice = server.complete(prompt, max_tokens=24, logprobs=5, ignore_eos=True,
                             **({} if seed is None else {"seed": seed, "temperature": 0.8}))
    return choice["text"], tuple(choice["logprobs"]["token_logprobs"])


@pytest.fixture(scope="module")
def alone():
    with serving(ABACUS, "--max-model-len", 4096, "--no-enable-prefix-caching") as server:
        yield {seed: [ask(server, p, seed) for p in PROMPTS] for seed in (None, 11)}


@pytest.mark.parametrize("how", FLAGS)
def test_same_answers(alone, how):
    flags = FLAGS[how] if "--max-model-len" in FLAGS[how] else ["--max-model-len", 4096, *FLAGS[how]]
    with serving(ABACUS, *flags) as server:
        for seed, want in alone.items():
            jobs = [lambda p=p: ask(server, p, seed) for p in PROMPTS]
            assert at_once(jobs) == want
            assert at_once(jobs * 2) == want * 2
        if how == "preemption":
            assert server.metric("vllm:num_preemptions_total") > 0
        if how == "prefix cache":
            assert server.metric("vllm:prefix_cache_hits_total") > 0
