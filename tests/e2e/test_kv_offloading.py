"""Blocks evicted from the KV cache are restored from memory and from disk, also after restarts, kills and damage to files."""
import json
import pathlib
import random
import shutil
import subprocess
import time

import pytest
from ranks import MPI

from serving import ABACUS, DATA, command, serving, wait_until

BLOCK = 16
CACHE = ["--num-gpu-blocks-override", 48, "--max-model-len", 640, "--block-size", BLOCK, "--max-num-seqs", 4,
         "--enable-prompt-tokens-details"]


def ask(server, tokens):
    """Returns the number of cached tokens, and the answer's tokens with their logprobs."""
    body = {"model": "m", "prompt": tokens, "max_tokens": 4, "temperature": 0, "ignore_eos": True, "logprobs": 3}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    choice = answer["choices"][0]
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0), (choice["text"], choice["logprobs"])


def prompts(seed, count, length=480):
    rng = random.Random(seed)
    return [[rng.randrange(3, 60) for _ in range(length)] for _ in range(count)]


def files(folder):
    return sorted(pathlib.Path(folder).glob("*/*.kv"))


def fill(server, folder):
    """Sends a prompt, then others until its blocks are on disk. Returns the prompt and its answer."""
    first, *others = prompts(1, 4)
    cached, answer = ask(server, first)
    for other in others:
        ask(server, other)
    wait_until(lambda: len(files(folder)) >= 60, "blocks are written")
    return cached, answer, first


def settle(folder):
    """Returns when no block has been written for a while."""
    before = -1
    while before != (before := len(files(folder))):
        time.sleep(0.3)


EMULATED = ["--device", "emulated", "--gpu-memory-utilization", 0.5]
WAYS = {"alone": [], "tensor": ["-tp", 2, "--tensor-parallel-mode", "exact"], "stages": ["-pp", 2, "--tensor-parallel-mode", "exact"], "both": ["-tp", 2, "-pp", 2, "--tensor-parallel-mode", "exact"],
        "processes": ["-tp", 2, *MPI], "stages as processes": ["-pp", 2, *MPI], "device": EMULATED, "devices": [*EMULATED, "-tp", 2],
        "engines of ranks": ["-dp", 2, "-tp", 2, "--tensor-parallel-mode", "exact"]}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_blocks_of_all_ranks_and_devices_come_back(way, tmp_path):
    """Blocks are restored from memory, from disk, and after a restart, with the bits of a fresh computation. A server with another number
    of ranks does not find them."""
    first, *others = prompts(1, 4)
    with serving(ABACUS, *CACHE, *way) as server:
        fresh = ask(server, first)[1]
    tiers = ["--kv-offloading-size", 0.0001, "--kv-offloading-path", tmp_path / "kv"]
    with serving(ABACUS, *CACHE, *way, *tiers) as server:
        assert ask(server, first) == (0, fresh)
        for other in others:
            assert ask(server, other)[0] == 0
        settle(tmp_path / "kv")
        assert ask(server, first) == (464, fresh)
        assert server.metric('sluice:kv_tier_loaded_blocks_total{tier="ram"}') + server.metric('sluice:kv_tier_loaded_blocks_total{tier="disk"}') > 0
        assert server.metric("vllm:external_prefix_cache_hits_total") > 0
        assert server.stop() == 0
    with serving(ABACUS, *CACHE, *way, *tiers) as server:
        assert ask(server, first) == (464, fresh)
        assert server.metric('sluice:kv_tier_loaded_blocks_total{tier="disk"}') > 0
    if way:
        with serving(ABACUS, *CACHE, *tiers) as server:
            assert ask(server, first)[0] == 0


@pytest.mark.parametrize("way", ["alone", "tensor", "stages", "stages as processes", "device"])
def test_states_of_all_ranks_and_devices_come_back(way, tmp_path):
    """Snapshots of recurrent layers are stored together with the blocks. One of the two stages has only such
    layers."""
    config = json.loads((DATA / "checkpoints" / "tiny-qwen3.5" / "config.json").read_text())
    config.get("text_config", config)["vocab_size"] = 512
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    flags = ["--load-format", "dummy", "--seed", 3, "--tokenizer", DATA / "checkpoints" / "llama-bf16", "--max-model-len", 256, "--max-num-seqs", 2,
             "--num-gpu-blocks-override", 20, "--block-size", BLOCK, "--state-snapshot-interval", 32, "--enable-prompt-tokens-details", *WAYS[way]]
    work = prompts(4, 5, 200)
    with serving(model, *flags) as server:
        fresh = [ask(server, tokens)[1] for tokens in work]
    tiers = ["--kv-offloading-size", 0.001, "--kv-offloading-path", tmp_path / "kv"]
    with serving(model, *flags, *tiers) as server:
        assert [ask(server, tokens) for tokens in work] == [(0, answer) for answer in fresh]
        assert [ask(server, tokens) for tokens in work] == [(192, answer) for answer in fresh]
        assert server.metric("vllm:external_prefix_cache_hits_total") > 0 and server.stop() == 0
    with serving(model, *flags, *tiers) as server:
        assert ask(server, work[0]) == (192, fresh[0])


def test_a_second_turn_after_eviction_is_read_from_memory():
    first, *others = prompts(1, 4)
    with serving(ABACUS, *CACHE) as server:
        fresh = ask(server, first)[1]
    with serving(ABACUS, *CACHE, "--kv-offloading-size", 0.1) as server:
        assert ask(server, first) == (0, fresh)
        for other in others:
            assert ask(server, other)[0] == 0
        assert ask(server, first) == (464, fresh)
        assert server.metric("vllm:external_prefix_cache_hits_total") > 0
        assert server.metric('sluice:kv_tier_loaded_blocks_total{tier="ram"}') > 0
        assert "KV tiers" in server.log()


def test_a_restart_finds_the_disk_and_nothing_else(tmp_path):
    """A server killed in the middle of writing leaves complete blocks; damaged, truncated and foreign files are misses."""
    disk = ["--kv-offloading-path", tmp_path / "kv"]
    with serving(ABACUS, *CACHE, *disk) as server:
        _, fresh, first = fill(server, tmp_path / "kv")
        server.process.kill()
        server.process.wait()
    folder = files(tmp_path / "kv")[0].parent
    (folder / "tmp-1-1").write_bytes(b"half a block")
    with serving(ABACUS, *CACHE, *disk) as server:
        assert ask(server, first) == (464, fresh)
        assert server.metric('sluice:kv_tier_loaded_blocks_total{tier="disk"}') >= 29
        wait_until(lambda: not (folder / "tmp-1-1").exists(), "unfinished files are removed")
        assert server.stop() == 0
    for i, file in enumerate(files(tmp_path / "kv")):
        data = bytearray(file.read_bytes())
        if i % 3 == 0:
            data[len(data) // 2] ^= 1
        elif i % 3 == 1:
            del data[-8:]
        else:
            data = bytearray(files(tmp_path / "kv")[0].read_bytes())
            data[-1] ^= 1
        file.write_bytes(data)
    with serving(ABACUS, *CACHE, *disk) as server:
        assert ask(server, first) == (0, fresh)
        assert server.metric("sluice:kv_tier_damaged_files_total") > 20


def test_blocks_of_other_weights_are_not_found(tmp_path):
    """Blocks of the old weights remain on disk: a server with the old weights finds them again."""
    disk = ["--kv-offloading-path", tmp_path / "kv"]
    model = tmp_path / "model"
    shutil.copytree(ABACUS, model)
    with serving(model, *CACHE, *disk) as server:
        _, fresh, first = fill(server, tmp_path / "kv")
    with serving(model, *CACHE, *disk, "--dtype", "float32") as server:
        assert ask(server, first)[0] == 0
    with serving(model, *CACHE, *disk) as server:
        assert ask(server, first) == (464, fresh)
    weights = next(model.glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-64:] = bytes(64)
    weights.write_bytes(data)
    with serving(model, *CACHE, *disk) as server:
        assert ask(server, first)[0] == 0


def test_a_disk_that_cannot_be_written_ends_writing_alone(tmp_path):
    kv = tmp_path / "kv"
    with serving(ABACUS, *CACHE, "--kv-offloading-path", kv) as server:
        folder = wait_until(lambda: list(kv.iterdir()), "the folder is made")[0]
        shutil.rmtree(folder)
        folder.write_text("no folder")
        for tokens in prompts(2, 5):
            assert ask(server, tokens)[0] == 0
        wait_until(lambda: server.metric("sluice:kv_tier_disk_writes") == 0, "writing ends")
        assert server.log().count("so no more blocks are written to disk") == 1
        assert ask(server, prompts(2, 1)[0])[1]


def test_a_full_disk_ends_writing_alone(tmp_path):
    """On a full disk, earlier blocks are still read, and answers equal those of a fresh computation."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no file systems of one's own here")
    kv = tmp_path / "kv"
    kv.mkdir()
    small = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=200k none "$0" && exec "$@"', str(kv)]
    work = prompts(3, 6)
    with serving(ABACUS, *CACHE) as server:
        fresh = [ask(server, tokens)[1] for tokens in work]
    with serving(ABACUS, *CACHE, "--kv-offloading-path", kv, launcher=small) as server:
        for _ in range(2):
            assert [ask(server, tokens)[1] for tokens in work] == fresh
        wait_until(lambda: server.metric("sluice:kv_tier_disk_writes") == 0, "writing ends")
        assert server.log().count("so no more blocks are written to disk") == 1 and "No space left" in server.log()
        assert [ask(server, tokens)[1] for tokens in work] == fresh
        assert server.metric('sluice:kv_tier_stored_blocks_total{tier="disk"}') > 0 and server.get("/health")[0] == 200


def test_a_reset_forgets_the_tiers(tmp_path):
    flags = ["--kv-offloading-path", tmp_path / "kv", "--kv-offloading-size", 0.0002]
    with serving(ABACUS, *CACHE, *flags, env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
        first = fill(server, tmp_path / "kv")[2]
        assert server.request("POST", "/reset_prefix_cache")[0] == 200
        assert ask(server, first)[0] == 0
        wait_until(lambda: len(files(tmp_path / "kv")) < 60, "files are removed")


def test_a_server_that_is_stopped_writes_what_is_in_memory(tmp_path):
    """The server's engines share the files on disk."""
    disk = ["--kv-offloading-path", tmp_path / "kv", "--kv-offloading-size", 0.1, "--data-parallel-size", 2]
    first = prompts(1, 1)[0]
    with serving(ABACUS, *CACHE, *disk) as server:
        assert ask(server, first)[0] == 0
        assert not files(tmp_path / "kv")
        assert server.stop() == 0
    assert len(files(tmp_path / "kv")) >= 30
    with serving(ABACUS, *CACHE, *disk) as server:
        assert ask(server, first)[0] == 464


@pytest.mark.parametrize("way", ["alone", "tensor", "stages", "device", "devices"])
def test_sleep_empties_the_memory_and_leaves_the_files(tmp_path, way):
    flags = ["--kv-offloading-path", tmp_path / "kv", "--enable-sleep-mode", *WAYS[way]]
    with serving(ABACUS, *CACHE, *flags, env={"VLLM_SERVER_DEV_MODE": "1"}) as server:
        _, fresh, first = fill(server, tmp_path / "kv")
        assert server.post("/sleep", None)[0] == 200 and server.post("/wake_up", None)[0] == 200
        assert ask(server, first) == (464, fresh)
        assert server.metric('sluice:kv_tier_loaded_blocks_total{tier="disk"}') >= 29


def test_what_cannot_be_moved_is_refused(tmp_path):
    def refused(*flags):
        done = subprocess.run(command("serve", ABACUS, "--kv-offloading-size", 1, *flags), capture_output=True, text=True, timeout=300)
        assert done.returncode != 0
        return done.stderr

    assert "--no-enable-prefix-caching" in refused("--no-enable-prefix-caching")
    assert "--kv-offloading-size: the tiers of the KV cache take" in refused("--kv-offloading-size", 1e5)
    assert "LMCache" in refused("--kv-offloading-backend", "lmcache")
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused("--kv-offloading-path", tmp_path / "file" / "folder")
