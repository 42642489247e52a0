"""Reads cache events as routers do: with pyzmq and msgspec, and with the routers' type declarations."""
import json
import random
import re
import select
import signal
import subprocess
import sys

import pytest
import zmq
from kv_router import Router

from serving import ABACUS, at_once, command, free_port, serving, wait_until

BLOCK = 16


def config(**more):
    return json.dumps({"enable_kv_cache_events": True, **more})


def endpoints(server):
    found = re.search(r"cache events of engine 0 at tcp://\S*:(\d+), replayed at tcp://\S*:(\d+)", server.log())
    return ["tcp://127.0.0.1:" + port for port in found.groups()]


def published(server):
    return int(server.metric("sluice:kv_events_published_total"))


def ask(server, tokens, **more):
    status, answer = server.post("/v1/completions", {"model": "m", "prompt": tokens, "max_tokens": 4, "temperature": 0, "ignore_eos": True, **more})
    assert status == 200, answer
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def prompts(rng, count):
    """Prompts that share prefixes, some with a salt."""
    stems = [[rng.randrange(3, 60) for _ in range(rng.randrange(20, 200))] for _ in range(12)]
    for _ in range(count):
        stem = rng.choice(stems)
        tokens = stem[:rng.randrange(1, len(stem) + 1)] + [rng.randrange(3, 60) for _ in range(rng.randrange(1, 40))]
        yield tokens, rng.choice(["", "", "tenant"])


@pytest.mark.parametrize("requests", [400, pytest.param(10000, marks=pytest.mark.slow)])
def test_a_router_knows_what_the_cache_holds(requests):
    """After many concurrent requests, for which the cache is too small, the router's index predicts the hits of each further request."""
    flags = ["--kv-events-config", config(endpoint="tcp://*:0", replay_endpoint="tcp://127.0.0.1:0", topic="kv-events"),
             "--num-gpu-blocks-override", 120, "--enable-prompt-tokens-details", "--max-num-seqs", 8, "--block-size", BLOCK, "--max-model-len", 512]
    rng = random.Random(7)
    with serving(ABACUS, *flags) as server:
        events, replay = endpoints(server)
        router = Router(events, "kv-events")
        work = list(prompts(rng, requests))
        ask(server, work[0][0])
        router.catch_up(replay)  # batches published before the subscription
        assert router.blocks
        for begin in range(0, len(work), 400):  # 400 threads at once
            at_once([lambda tokens=tokens, salt=salt: ask(server, tokens, **({"cache_salt": salt} if salt else {}))
                     for tokens, salt in work[begin:begin + 400]])
            router.catch_up(replay)
            router.skip()
        router.read(published(server))
        assert router.next > 10 and router.salts == {"tenant"}
        hits = 0
        for tokens, salt in prompts(random.Random(8), 60):
            tokens = rng.choice(work)[0] if rng.random() < 0.5 else tokens
            expected = router.hit(tokens, BLOCK, salt)
            assert ask(server, tokens, **({"cache_salt": salt} if salt else {})) == expected
            hits += expected > 0
            router.read(published(server))
        assert hits > 5
        assert int(server.metric("sluice:kv_events_dropped_total")) == 0
        router.close()


def test_a_router_knows_what_the_tiers_hold(tmp_path):
    """For blocks that leave the cache, events name the tier CPU and then STORAGE. The index predicts the hits of all three tiers
    together."""
    flags = ["--kv-events-config", config(endpoint="tcp://*:0", replay_endpoint="tcp://127.0.0.1:0"), "--num-gpu-blocks-override", 48, "--max-model-len", 512,
             "--kv-offloading-size", 0.0005, "--kv-offloading-path", tmp_path, "--enable-prompt-tokens-details", "--block-size", BLOCK, "--max-num-seqs", 4]
    rng = random.Random(3)
    work = list(prompts(rng, 150))
    with serving(ABACUS, *flags, env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
        events, replay = endpoints(server)
        router = Router(events)

        def files():
            return len(list(tmp_path.glob("*/*.kv")))

        for tokens, salt in work:
            ask(server, tokens, **({"cache_salt": salt} if salt else {}))
        # The next step reports the blocks written since the last one.
        wait_until(lambda: ask(server, [5]) == 0 and router.catch_up(replay) is None and len(router.tiers["STORAGE"]) == files() > 40, "the disk is not told")
        assert router.tiers["CPU"] and router.salts == {"tenant"}
        hits = 0
        for tokens, salt in rng.sample(work, 40):
            router.catch_up(replay)
            expected = router.hit(tokens, BLOCK, salt)
            assert ask(server, tokens, **({"cache_salt": salt} if salt else {})) == expected
            hits += expected > 0
        assert hits > 20 and server.metric("vllm:external_prefix_cache_hits_total") > 0
        assert server.post("/reset_prefix_cache", None)[0] == 200
        router.catch_up(replay)
        wait_until(lambda: router.catch_up(replay) is None and router.cleared == 1, "no event of the reset")
        assert not router.blocks and not any(router.tiers.values())
        router.close()


def test_a_reset_clears_the_index():
    flags = ["--kv-events-config", config(endpoint="tcp://*:0", replay_endpoint="tcp://127.0.0.1:0")]
    with serving(ABACUS, *flags, env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
        events, replay = endpoints(server)
        router = Router(events)
        ask(server, list(range(3, 60)))
        assert server.post("/reset_prefix_cache", None) == (200, {"success": True})
        router.catch_up(replay)
        wait_until(lambda: published(server) >= 2, "no event of the reset")
        router.catch_up(replay)
        assert router.cleared == 1 and not router.blocks
        router.close()


def test_engines_have_ports_of_their_own():
    first = free_port(2)
    flags = ["--kv-events-config", config(endpoint="tcp://*:%d" % first), "--data-parallel-size", 2]
    with serving(ABACUS, *flags) as server:
        routers = [Router("tcp://127.0.0.1:%d" % port, rank=rank) for rank, port in enumerate((first, first + 1))]

        def heard():
            for _ in range(4):
                ask_any = [random.randrange(3, 60) for _ in range(40)]
                server.post("/v1/completions", {"model": "m", "prompt": ask_any, "max_tokens": 1})
            for router in routers:
                while router.socket.poll(50):
                    _, number, payload = router.socket.recv_multipart()
                    router.take(int.from_bytes(number, "big"), payload)
            return all(router.blocks for router in routers)

        wait_until(heard, "no events of one of the engines")
        for router in routers:
            router.close()


@pytest.mark.slow
def test_a_subscriber_that_stops_reading_delays_nobody():
    """A subscriber is stopped. Other clients still get their answers, and the server counts the events that the subscriber misses."""
    port = free_port()
    flags = ["--kv-events-config", config(endpoint="tcp://*:%d" % port, hwm=4), "--num-gpu-blocks-override", 64, "--max-model-len", 512]
    script = ("import zmq\ns = zmq.Context().socket(zmq.SUB)\ns.setsockopt(zmq.RCVHWM, 1)\ns.setsockopt(zmq.RCVBUF, 4096)\n"
              "s.subscribe('')\ns.connect('tcp://127.0.0.1:%d')\ns.recv_multipart()\nprint('heard', flush=True)\nimport time\ntime.sleep(1000)" % port)
    with serving(ABACUS, *flags) as server, subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as peer:
        try:
            tokens = [5] * 300
            wait_until(lambda: server.complete([random.randrange(3, 60) for _ in range(300)], max_tokens=1) and select_line(peer), "no event")
            peer.send_signal(signal.SIGSTOP)
            wait_until(lambda: [server.complete([random.randrange(3, 60) for _ in range(300)], max_tokens=1) for _ in range(20)]
                       and int(server.metric("sluice:kv_events_missed_total")) > 0, "nothing is missed", seconds=300)
            assert server.complete(tokens, max_tokens=1)
            assert server.get("/health")[0] == 200
        finally:
            peer.kill()


def select_line(process):
    return bool(select.select([process.stdout], [], [], 0.05)[0])


def test_what_is_wrong_is_said_at_the_start():
    for value, expected in [('{"publisher": "kafka"}', "expected zmq or null"), ('{"endpoint": "http://x"}', "expected tcp://"),
                            ('{"hwm": 0}', "hwm")]:
        run = subprocess.run(command("serve", ABACUS, "--port", 0, "--kv-events-config", value), capture_output=True, text=True, timeout=60)
        assert run.returncode == 2 and expected in run.stderr + run.stdout and "--kv-events-config" in run.stderr + run.stdout
    with zmq.Context() as context, context.socket(zmq.PUB) as taken:
        port = taken.bind_to_random_port("tcp://0.0.0.0")
        run = subprocess.run(command("serve", ABACUS, "--port", 0, "--kv-events-config", config(endpoint="tcp://*:%d" % port)),
                             capture_output=True, text=True, timeout=60)
        assert run.returncode == 6 and "cannot listen at" in run.stderr + run.stdout
