"""A client's requests do not delay other clients, and the limits of each client are enforced."""
import threading

from serving import ABACUS, serving

QUESTION = "Anna has 12 pens and buys 7."
SEQUENCES = 400
KEYS = ("--api-key", "flood", "neighbour")


def authorized(key):
    return {"Authorization": "Bearer " + key}


def ask(server, key, **fields):
    body = {"prompt": QUESTION, "max_tokens": 32, "ignore_eos": True, "temperature": 0, "logprobs": 1, **fields}
    return server.request("POST", "/v1/completions", body, authorized(key))


def choices(answer):
    status, _, body = answer
    assert status == 200, body
    return body[body.index(b'"choices"') : body.index(b'"usage"')]


def test_l08_a_neighbour_is_served_during_a_flood():
    with serving(ABACUS, "--max-model-len", 512, "--max-num-seqs", 4, *KEYS) as server:
        want = choices(ask(server, "neighbour"))
        flood = threading.Thread(target=ask, args=(server, "flood"), kwargs={"n": SEQUENCES, "temperature": 1})
        flood.start()
        while server.metric("vllm:num_requests_waiting") < SEQUENCES // 2:
            assert flood.is_alive()
        assert choices(ask(server, "neighbour")) == want
        assert server.metric("vllm:num_requests_waiting") > SEQUENCES // 4, "the flood went first"
        flood.join()


def test_the_urgent_are_admitted_next():
    """A sequence ends less often than every hundred steps, and the cache also runs out of blocks."""
    for blocks in ((), ("--num-gpu-blocks-override", 40)):
        with serving(ABACUS, "--max-model-len", 512, "--max-num-seqs", 2, "--scheduling-policy", "priority", *blocks) as server:
            ended = []

            def client(name, priority, tokens, server=server, ended=ended):
                server.complete(QUESTION, max_tokens=tokens, ignore_eos=True, priority=priority)
                ended.append(name)

            patient = [threading.Thread(target=client, args=("patient", 10**6, 300)) for _ in range(8)]
            for thread in patient:
                thread.start()
            while server.metric("vllm:num_requests_waiting") < 6:
                assert any(thread.is_alive() for thread in patient)
            urgent = [threading.Thread(target=client, args=("urgent", -(10**6), 8)) for _ in range(2)]
            for thread in urgent:
                thread.start()
            for thread in patient + urgent:
                thread.join()
            assert [i for i, name in enumerate(ended) if name == "urgent"][-1] <= 5, ended


def test_a09_limits_of_a_client():
    with serving(ABACUS, "--max-model-len", 512, *KEYS, "--limit-requests-per-minute", 1) as server:
        status, headers, _ = ask(server, "flood")
        assert status == 200
        assert headers["x-ratelimit-limit-requests"] == "1"
        answers = [ask(server, "flood") for _ in range(2)]
        refused = [answer for answer in answers if answer[0] == 429]
        assert refused, "two more are too many for a minute"
        assert 1 <= int(refused[0][1]["retry-after"]) <= 60
        assert b'"code":429' in refused[0][2]
        assert ask(server, "neighbour")[0] == 200
