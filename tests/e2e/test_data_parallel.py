"""Several engines behind one server: their answers equal those of one engine, requests are routed as documented,
and /metrics has figures per engine."""
import concurrent.futures
import re

import pytest

from serving import ABACUS, DATA, run, serving, wait_until

PROMPTS = ["12 + 30 =", "Tom has 3 apples and buys 4 more. How many apples has Tom?", "7", "The abacus counts the beads"]
ASKED = [{"temperature": 0, "logprobs": 4}, {"temperature": 0.9, "seed": 5, "logprobs": 2, "n": 2}]


def complete(server, prompt, headers=None, **fields):
    status, answer = server.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 24, "ignore_eos": True, **fields}, headers=headers or {})
    assert status == 200, answer
    return answer["choices"]


def answers(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda job: complete(server, job[0], **job[1]), [(p, f) for p in PROMPTS for f in ASKED]))


def by_engine(server, name):
    text = server.get("/metrics")[1].decode()
    return {int(e): float(v) for e, v in re.findall(r'^%s{engine="(\d+)",model_name="[^"]*"} (\S+)$' % re.escape(name), text, re.M)}


@pytest.fixture(scope="module")
def two():
    with serving(ABACUS, "-dp", 2) as server:
        yield server


@pytest.fixture(scope="module")
def expected(abacus):
    return answers(abacus)


def test_answers_are_those_of_one_engine(two, expected):
    assert answers(two) == expected
    assert "2 engines share the weights and divide" in two.log()
    assert two.get("/health")[0] == 200


@pytest.mark.parametrize("flags", [["-dp", 3, "-tp", 2, "--tensor-parallel-mode", "exact"], ["-dp", 2, "-pp", 2, "--tensor-parallel-mode", "exact"]])
def test_engines_may_have_ranks(expected, flags):
    with serving(ABACUS, *flags) as server:
        assert answers(server) == expected


def test_requests_are_divided_and_prefixes_found_again(two):
    tokens = by_engine(two, "vllm:generation_tokens_total")
    for i in range(6):
        complete(two, "%d and something that no other prompt begins with" % (1000 + 7 * i), max_tokens=4)
    after = by_engine(two, "vllm:generation_tokens_total")
    assert {e: after[e] - tokens[e] for e in after} == {0: 12, 1: 12}
    hits = by_engine(two, "vllm:prefix_cache_hits_total")
    conversation = "Anna has 30 beads, Tom has 12 beads, and the abacus of their mother has as many as both of them together."
    for _ in range(4):
        conversation += complete(two, conversation, max_tokens=16)[0]["text"]
    found = by_engine(two, "vllm:prefix_cache_hits_total")
    changed = [e for e in found if found[e] > hits[e]]
    assert len(changed) == 1, "one engine has the conversation"


def test_a_header_chooses_the_engine(two):
    for engine in (0, 1, 1):
        before = by_engine(two, "vllm:generation_tokens_total")
        complete(two, "12 + 30 =", {"X-data-parallel-rank": str(engine)}, max_tokens=3)
        after = by_engine(two, "vllm:generation_tokens_total")
        assert [after[e] - before[e] for e in (0, 1)] == [3 * (e == engine) for e in (0, 1)]
    status, answer = two.post("/v1/completions", {"model": "m", "prompt": "1"}, headers={"X-data-parallel-rank": "2"})
    assert status == 400 and "data_parallel_rank 2 is out of range [0, 2)." in str(answer)


def test_every_engine_is_labelled(two):
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:time_to_first_token_seconds_count", "sluice:engine_healthy"):
        assert sorted(by_engine(two, name)) == [0, 1], name
    assert set(by_engine(two, "sluice:engine_healthy").values()) == {1}
    wait_until(lambda: set(by_engine(two, "vllm:num_requests_running").values()) == {0}, "requests still run")


def test_a_model_that_pools():
    def vectors(*flags):
        with serving(DATA / "checkpoints" / "qwen3-bf16", "--runner", "pooling", "--max-model-len", 128, *flags) as server:
            status, answer = server.post("/v1/embeddings", {"model": "m", "input": ["one", "two beads", "the third text"]})
            assert status == 200, answer
            return [entry["embedding"] for entry in answer["data"]]

    assert vectors("-dp", 2) == vectors()


def test_all_engines_end_together():
    with serving(ABACUS, "-dp", 2) as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(complete, server, "12 + 30 =", {"X-data-parallel-rank": str(engine)}, max_tokens=400) for engine in (0, 1)]
        wait_until(lambda: all(by_engine(server, "vllm:num_requests_running").values()) or all(job.done() for job in running), "requests do not run")
        assert server.stop() == 0
        assert [job.result()[0]["finish_reason"] for job in running] == ["length", "length"]


@pytest.mark.parametrize("flags, label", [
    (["-dp", 4, "--data-parallel-rank", 3], [3]),
    (["-dp", 4, "--data-parallel-hybrid-lb", "--data-parallel-size-local", 2, "--data-parallel-start-rank", 2], [2, 3]),
])
def test_behind_a_balancer_a_server_is_some_of_the_engines(flags, label):
    with serving(ABACUS, *flags) as server:
        complete(server, "1", max_tokens=1)
        assert sorted(by_engine(server, "vllm:generation_tokens_total")) == label


@pytest.mark.parametrize("flags, says", [
    (["-dp", "65"], "data_parallel_size must be in [1, 64], got 65"),
    (["-dp", "2", "--device", "emulated"], "data_parallel_size 2: emulated has one engine; run a server for each device behind a load balancer"),
    (["-dp", "2", "-tp", "2", "--distributed-executor-backend", "mpi"], "2 engines share weights within a process"),
    (["-dp", "2", "--data-parallel-rank", "2"], "--data-parallel-rank 2: expected less than --data-parallel-size, which is 2"),
    (["-dp", "4", "--data-parallel-size-local", "2"], "use --data-parallel-hybrid-lb"),
    (["--data-parallel-external-lb"], "--data-parallel-external-lb requires --data-parallel-rank"),
    (["-dp", "2", "--kv-cache-memory-bytes", "1", "--max-model-len", "64"], "in each of 2 engines"),
])
def test_what_cannot_be_is_refused(flags, says):
    done = run("serve", str(ABACUS), *flags)
    assert done.returncode != 0 and says in done.stdout + done.stderr
