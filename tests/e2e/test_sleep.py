"""Sleep mode: memory is released, requests during sleep wait or are rejected, and answers after it have the same bits."""
import json
import shutil
import threading

import pytest

from serving import ABACUS, run, serving, wait_until

DEV = {"VLLM_SERVER_DEV_MODE": "1"}
ASKED = {"logprobs": 4, "max_tokens": 24, "ignore_eos": True}


def resident_kib(server):
    with open("/proc/%d/status" % server.process.pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def answer(server):
    return server.complete("Tom has 3 apples and buys 4 more.", **ASKED)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The bundled model with larger layers and random weights, so that weights and cache are most of the process's memory."""
    folder = tmp_path_factory.mktemp("large") / "model"
    shutil.copytree(ABACUS, folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8, head_dim=64)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("flags", [[], ["-tp", 2]], ids=["alone", "ranks"])
def test_memory_is_given_back(large, flags):
    """Sleep releases memory, also in the ranks of a group."""
    with serving(large, "--load-format", "dummy", "--enable-sleep-mode", "--kv-cache-memory-bytes", "512M", "--max-model-len", 512, *flags, env=DEV) as server:
        before = answer(server)
        full = resident_kib(server)
        assert full > 400_000
        for level in (1, 2):
            assert server.post("/sleep?level=%d" % level, None) == (200, {"status": "sleeping", "level": level})
            assert resident_kib(server) < 0.15 * full
            assert server.get("/health")[0] == 200 and server.get("/ready")[0] == 503
            assert server.post("/wake_up", None) == (200, {"status": "awake", "tags": None})
            assert answer(server) == before
            assert server.get("/ready")[0] == 200


def test_requests_wait_until_it_is_awake():
    with serving(ABACUS, "--enable-sleep-mode", env=DEV) as server:
        before = answer(server)
        server.post("/sleep", None)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(answer(server))) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.post("/tokenize", {"model": "m", "prompt": "a"})[0] == 200, "text needs no weights")
        assert not answers and server.metric("vllm:engine_sleep_state") is not None
        assert server.post("/wake_up?tags=weights", None) == (200, {"status": "sleeping", "tags": ["weights"]})
        assert json.loads(server.get("/is_sleeping")[1]) == {"is_sleeping": True} and not answers
        assert server.post("/wake_up?tags=kv_cache", None) == (200, {"status": "awake", "tags": ["kv_cache"]})
        for thread in threads:
            thread.join()
        assert answers == [before] * 4
        assert server.post("/wake_up?tags=lungs", None)[0] == 400
        assert server.post("/sleep?mode=keep", None)[0] == 400


def test_requests_are_refused_if_asked_for():
    with serving(ABACUS, "--enable-sleep-mode", "--sleep-requests", "refuse", env=DEV) as server:
        server.post("/sleep", None)
        status, error = server.post("/v1/completions", {"model": "m", "prompt": "a"})
        assert status == 503 and "sleeps" in error["error"]["message"]
        server.post("/wake_up", None)
        assert answer(server)


def test_what_runs_ends_before(abacus):
    """For a stream in progress, mode=abort ends it and mode=wait lets it finish; the server sleeps in both cases."""
    with serving(ABACUS, "--enable-sleep-mode", env=DEV) as server:
        for mode, reasons in (("wait", {"length"}), ("abort", {"abort", "length"})):
            ends = []

            def ask(ends=ends):
                ends.append(server.complete("a", max_tokens=1500, ignore_eos=True)["finish_reason"])

            thread = threading.Thread(target=ask)
            thread.start()
            wait_until(lambda: server.metric("vllm:num_requests_running"), "nothing runs")
            assert server.post("/sleep?mode=%s" % mode, None)[0] == 200
            thread.join()
            assert set(ends) <= reasons
            server.post("/wake_up", None)


def test_an_idle_server_sleeps_until_a_request_comes():
    with serving(ABACUS, "--enable-sleep-mode", "--sleep-idle-seconds", 0.5) as server:
        before = answer(server)
        for _ in range(2):
            wait_until(lambda: b"sleeping" in server.get("/ready")[1], "it does not fall asleep")
            assert answer(server) == before
        assert server.log().count("a request wakes the server") >= 2


def test_a_failed_wake_up_leaves_it_asleep(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ABACUS, folder)
    with serving(folder, "--enable-sleep-mode", env=DEV) as server:
        before = answer(server)
        server.post("/sleep", None)
        weights = folder / "model.safetensors"
        weights.rename(folder / "away")
        status, error = server.post("/wake_up", None)
        assert status >= 400 and "safetensors" in error["error"]["message"]
        assert json.loads(server.get("/is_sleeping")[1]) == {"is_sleeping": True} and server.get("/health")[0] == 200
        (folder / "away").rename(weights)
        assert server.post("/wake_up", None)[0] == 200
        assert answer(server) == before


def test_what_cannot_sleep_is_refused_at_the_start():
    for flags, expected in ((["--data-parallel-size", "2"], "engines that share weights"), (["--enable-lora"], "LoRA adapters")):
        refused = run("serve", ABACUS, "--port", 0, "--enable-sleep-mode", *flags)
        assert refused.returncode == 3 and "--enable-sleep-mode" in refused.stderr and expected in refused.stderr
