"""The promise for CPUs: the same tokens and bit-identical logprobs, regardless of other requests and of how the prompt is divided into
chunks."""
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
    with serving(ABACUS, "--max-model-len", 4096, *FLAGS[how]) as server:
        for seed, want in alone.items():
            jobs = [lambda p=p, seed=seed: ask(server, p, seed) for p in PROMPTS]
            assert at_once(jobs) == want
            assert at_once(jobs * 2) == want * 2
        if how == "prefix cache":
            assert server.metric("vllm:prefix_cache_hits_total") > 0


def test_l07_same_answers_after_preemption():
    """The eight prompts of a request fit at first. As their answers grow, some sequences are preempted and computed again."""
    prompts = ["Ann has %d pears. " % (10 + i) * 10 for i in range(8)]
    body = {"model": "m", "max_tokens": 64, "logprobs": 5, "ignore_eos": True, "temperature": 0.8, "seed": 11}

    def answers(server, prompt):
        status, answer = server.post("/v1/completions", {**body, "prompt": prompt})
        assert status == 200, answer
        return [(c["text"], c["logprobs"]["token_logprobs"]) for c in answer["choices"]], answer["usage"]["prompt_tokens"]

    tokens_of_cache = 16 * 64
    with serving(ABACUS, "--max-model-len", 1000, "--no-enable-prefix-caching") as server:
        alone = [answers(server, prompt) for prompt in prompts]
        assert server.metric("vllm:num_preemptions_total") == 0
    num_prompt_tokens = sum(tokens for _, tokens in alone)
    assert num_prompt_tokens < tokens_of_cache < num_prompt_tokens + 64 * len(prompts)
    with serving(ABACUS, "--max-model-len", 1000, "--no-enable-prefix-caching", "--num-gpu-blocks-override", tokens_of_cache // 16) as server:
        together, _ = answers(server, prompts)
        assert server.metric("vllm:num_preemptions_total") > 0
    assert together == [choice for choices, _ in alone for choice in choices]
