"""A trainer replaces the weights atomically. Answers are then bit-identical to those of a server started with the new weights."""
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import threading

import pytest
from ranks import MPI, ranks_of

from serving import ABACUS, events, run, serving, wait_until

DEV = {"VLLM_SERVER_DEV_MODE": "1"}
DISK = ["--weight-transfer-config", '{"backend": "disk"}']
PROMPT = "Tom has 3 apples and buys 4 more. How many apples has Tom?"
ASKED = {"logprobs": 4, "max_tokens": 24, "ignore_eos": True}


BYTES = {"Content-Type": "application/octet-stream"}


def http(folder=None, **more):
    return ["--weight-transfer-config", json.dumps({"backend": "http", **({"folder": str(folder)} if folder else {}), **more})]


def pieces(folder, count):
    """The tensors of a checkpoint, divided into `count` safetensors files."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    names = sorted(name for name in header if name != "__metadata__")
    for first in range(count):
        part, content = {}, b""
        for name in names[first::count]:
            begin, end = header[name]["data_offsets"]
            part[name] = {**header[name], "data_offsets": [len(content), len(content) + end - begin]}
            content += data[8 + size + begin:8 + size + end]
        text = json.dumps(part).encode()
        yield struct.pack("<Q", len(text)) + text + content


def send(server, piece, **headers):
    return server.post("/update_weights", piece, headers={**BYTES, **headers})


def scores(server):
    """Logprobs of a prompt and of its answer."""
    return server.complete(PROMPT, prompt_logprobs=2, **ASKED)


@contextlib.contextmanager
def asked_meanwhile(server):
    """Three threads ask for a token again and again. Yields the list of their answers, complete after the block."""
    stop, seen = threading.Event(), []

    def ask():
        while not stop.is_set():
            seen.append(server.complete("7", max_tokens=1, logprobs=4))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def changed(folder, seed):
    """A copy of the model after a simulated training step: the sign of some numbers of its largest tensor is flipped."""
    shutil.copytree(ABACUS, folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    begin, end = max((entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"), key=lambda at: at[1] - at[0])
    for i in range(8 + size + begin + 1 + 2 * (seed % 7), 8 + size + end, 38):
        data[i] ^= 0x80
    path.write_bytes(data)
    return folder


def update(server, folder, version=None):
    assert server.post("/init_weight_transfer_engine", {"init_info": {}}) == (200, {"message": "Weight transfer initialized"})
    assert server.post("/start_weight_update", None) == (200, {"message": "Weight update started"})
    assert server.post("/update_weights", {"update_info": {"path": str(folder)}}) == (200, {"message": "Weights updated"})
    assert server.post("/finish_weight_update", {"weight_version": version}) == (200, {"message": "Weight update finished"})


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Checkpoints of a training run, and the answers of servers started with them."""
    folders = [changed(tmp_path_factory.mktemp("steps") / "step", seed) for seed in (1, 2)]
    answers = []
    for folder in folders:
        with serving(folder) as server:
            answers.append(scores(server))
    assert answers[0] != answers[1]
    return list(zip(folders, answers, strict=True))


def test_a_loop_of_training_scores_as_fresh_servers(steps):
    with serving(ABACUS, *DISK, env=DEV) as server:
        first = scores(server)
        assert json.loads(server.get("/weight_info")[1]) == {"weight_version": "default"}
        for number, (folder, expected) in enumerate(steps * 2):
            scores(server)  # fills the prefix cache with the old weights' keys
            update(server, folder, "step-%d" % number)
            assert json.loads(server.get("/weight_info")[1]) == {"weight_version": "step-%d" % number}
            assert scores(server) == expected
        assert server.post("/update_weight_version", {"new_version": "a\0b"})[0] == 400
        assert server.post("/update_weight_version", {"new_version": "last"}) == (200, {"success": True, "new_version": "last"})
        update(server, ABACUS)
        assert json.loads(server.get("/weight_info")[1]) == {"weight_version": "last"}
        assert scores(server) == first


def test_blocks_that_left_the_cache_are_of_the_old_weights(steps, tmp_path):
    """Blocks in memory and on disk are not restored until the weights that computed them are in use again."""
    flags = ["--kv-offloading-size", 0.0002, "--kv-offloading-path", tmp_path, "--num-gpu-blocks-override", 24, "--max-model-len", 256]
    prompt = [3 + i % 50 for i in range(160)]

    def ask(server):
        tokens = [server.complete(prompt, logprobs=2, max_tokens=4, ignore_eos=True)]
        for other in range(4):  # these prompts evict the first one
            server.complete([4 + (i * (other + 2)) % 50 for i in range(200)], max_tokens=1)
        return tokens

    folder, _ = steps[0]
    with serving(folder, *flags[4:]) as fresh:
        expected = ask(fresh)
    with serving(ABACUS, *DISK, *flags, env=DEV) as server:
        before = ask(server)
        assert ask(server) == before != expected
        back = server.metric("vllm:external_prefix_cache_hits_total")
        assert back > 0
        update(server, folder)
        assert ask(server) == expected
        assert server.metric("vllm:external_prefix_cache_hits_total") == back
        assert ask(server) == expected
        update(server, ABACUS)
        assert ask(server) == before


RANKS = {"tensor": ["-tp", 2, "--tensor-parallel-mode", "exact"], "stages": ["-pp", 2, "--tensor-parallel-mode", "exact"], "engines": ["-dp", 2],
         "engines of ranks": ["-dp", 2, "-tp", 2, "--tensor-parallel-mode", "exact"], "processes": ["-tp", 2, *MPI], "stages as processes": ["-pp", 2, *MPI]}


@pytest.mark.parametrize("ranks", RANKS.values(), ids=RANKS)
def test_all_ranks_change_together(steps, tmp_path, ranks):
    """Weights are updated while requests run. Each answer has one token, and is computed entirely with the old or
    entirely with the new weights. An interrupted update changes nothing on any rank."""
    with serving(ABACUS, *DISK, *ranks, "--max-model-len", 4096, env=DEV) as server:
        before = scores(server)
        half = tmp_path / "half"
        shutil.copytree(steps[0][0], half)
        data = (half / "model.safetensors").read_bytes()
        (half / "model.safetensors").write_bytes(data[:len(data) // 2])
        server.post("/start_weight_update", None)
        status, error = server.post("/update_weights", {"update_info": {"path": str(half)}})
        assert status == 400 and "the old weights remain in use" in error["error"]["message"] and "model.safetensors" in error["error"]["message"], error
        assert server.post("/finish_weight_update", None)[0] == 400
        assert scores(server) == before
        possible = []
        for folder in (ABACUS, steps[0][0], steps[1][0]):
            update(server, folder)
            possible.append(server.complete("7", max_tokens=1, logprobs=4))
            assert all(server.complete("7", max_tokens=1, logprobs=4) == possible[-1] for _ in range(4)), "on all engines"
        assert len({json.dumps(answer) for answer in possible}) == 3
        with asked_meanwhile(server) as seen:
            for number in range(3):
                for folder, expected in steps:
                    update(server, folder, "v%d" % number)
                    assert scores(server) == expected
        assert seen and all(answer in possible for answer in seen)
        assert json.loads(server.get("/weight_info")[1]) == {"weight_version": "v2"}


def test_a_rank_that_dies_while_weights_load_changes_nothing_silently(steps):
    """The update fails, and the error names the rank that has ended."""
    with serving(ABACUS, *DISK, "-tp", 2, *MPI, env=DEV) as server:
        server.post("/start_weight_update", None)
        os.kill(ranks_of(server)[1], signal.SIGKILL)
        status, error = server.post("/update_weights", {"update_info": {"path": str(steps[0][0])}})
        assert status >= 400 and "rank 1" in error["error"]["message"], error


def test_blocks_of_several_engines_are_of_the_old_weights(steps, tmp_path):
    """The engines share a disk. A block that one engine evicts before it switches to the new weights is not found
    under the new weights."""
    flags = ["--kv-offloading-path", tmp_path, "--num-gpu-blocks-override", 24, "--max-model-len", 256, "-dp", 2]
    work = [[3 + (i * seed) % 50 for i in range(160)] for seed in range(2, 10)]
    folder, _ = steps[0]
    with serving(folder, *flags[2:]) as fresh:
        expected = [fresh.complete(tokens, max_tokens=2, logprobs=2) for tokens in work]
    with serving(ABACUS, *DISK, *flags, env=DEV) as server:
        for _ in range(3):
            for tokens in work:
                server.complete(tokens, max_tokens=2, logprobs=2)
        update(server, folder)
        for _ in range(3):
            assert [server.complete(tokens, max_tokens=2, logprobs=2) for tokens in work] == expected
        assert server.metric("vllm:external_prefix_cache_hits_total") > 0


def test_what_runs_goes_on_with_the_new_weights(steps):
    """A request that is suspended in the middle (mode "keep") keeps its tokens; the following tokens come from the new weights."""
    folder, _ = steps[0]
    with serving(ABACUS, *DISK, "--max-model-len", 8192, env=DEV) as server, serving(folder) as fresh:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            server.complete(PROMPT, max_tokens=6000, ignore_eos=True, return_token_ids=True)))
        thread.start()
        wait_until(lambda: (server.metric("vllm:generation_tokens_total") or 0) > 20, "nothing runs")
        assert server.post("/pause?mode=keep", None) == (200, {"status": "paused"})
        frozen = server.metric("vllm:generation_tokens_total")
        assert json.loads(server.get("/is_paused")[1]) == {"is_paused": True}
        update(server, folder)
        assert server.metric("vllm:generation_tokens_total") == frozen and not answers and server.get("/health")[0] == 200
        assert server.post("/resume", None) == (200, {"status": "resumed"})
        thread.join()
        kept = int(frozen)
        prompt = server.post("/tokenize", {"model": "m", "prompt": PROMPT})[1]["tokens"]
        tokens = answers[0]["token_ids"]
        assert len(tokens) == 6000 > kept
        rest = fresh.complete(prompt + tokens[:kept], max_tokens=min(200, 6000 - kept), ignore_eos=True, return_token_ids=True)["token_ids"]
        assert tokens[kept:kept + 200] == rest


def test_a_cut_update_leaves_the_old_weights(steps, tmp_path):
    folder, expected = steps[0]
    with serving(ABACUS, *DISK, env=DEV) as server:
        before = scores(server)
        assert server.post("/update_weights", {"update_info": {"path": str(folder)}})[0] == 400
        assert server.post("/finish_weight_update", None)[0] == 400
        half = tmp_path / "half"
        shutil.copytree(folder, half)
        data = (half / "model.safetensors").read_bytes()
        (half / "model.safetensors").write_bytes(data[:len(data) // 2])
        for path, expected_words in ((half, "model.safetensors"), (tmp_path, "no safetensors"), (tmp_path / "none", "folder"), ("relative", "absolute")):
            server.post("/start_weight_update", None)
            status, error = server.post("/update_weights", {"update_info": {"path": str(path)}})
            assert status == 400 and expected_words in error["error"]["message"], error
            assert scores(server) == before
        assert server.post("/start_weight_update", None)[0] == 200
        assert server.post("/update_weights", {"update_info": {"names": ["a"]}})[0] == 400
        assert server.post("/update_weights", {"update_info": {"path": str(folder)}})[0] == 200
        assert scores(server) == before, "nothing changes before the end of an update"
        assert server.post("/start_weight_update", None)[0] == 200  # the trainer is back
        assert server.post("/finish_weight_update", None)[0] == 400
        assert scores(server) == before
        update(server, folder)
        assert scores(server) == expected


def test_weights_are_replaced_while_requests_run(steps):
    """No request fails, and each answer comes from one of the two models. An answer has one token, so it cannot
    span an update."""
    with serving(ABACUS, *DISK, env=DEV) as server:
        possible = []
        for folder in (ABACUS, steps[0][0], steps[1][0]):
            update(server, folder)
            possible.append(server.complete("7", max_tokens=1, logprobs=4))
        with asked_meanwhile(server) as seen:
            for _ in range(5):
                for folder, _ in steps:
                    update(server, folder)
        assert seen and all(answer in possible for answer in seen)


def test_weights_change_while_it_sleeps(steps):
    folder, expected = steps[1]
    with serving(ABACUS, *DISK, "--enable-sleep-mode", env=DEV) as server:
        server.post("/sleep?level=2", None)
        server.post("/start_weight_update", None)
        server.post("/update_weights", {"update_info": {"path": str(folder)}})
        status, error = server.post("/finish_weight_update", None)
        assert status == 503 and "tags=weights" in error["error"]["message"]
        server.post("/wake_up?tags=weights", None)
        assert server.post("/finish_weight_update", {"weight_version": "v2"})[0] == 200
        server.post("/wake_up?tags=kv_cache", None)
        assert scores(server) == expected
        server.post("/sleep", None)
        server.post("/wake_up", None)
        assert scores(server) == expected, "the last folder is read again"


def test_the_routes_need_the_option():
    with serving(ABACUS, env=DEV) as server:
        status, answer = server.post("/start_weight_update", None)
        assert status == 404 and "--weight-transfer-config" in answer["detail"]
    for value, expected in (('{"backend": "nccl"}', "nccl"), ("{}", "nccl")):
        refused = run("serve", ABACUS, "--port", 0, "--weight-transfer-config", value)
        assert refused.returncode == 3 and expected in refused.stderr and "--weight-transfer-config" in refused.stderr


def test_tokens_in_and_out_tell_whose_they_are(steps):
    """/inference/v1/generate returns the tokens and logprobs of a completion, and the version of the weights that sampled each token."""
    folder, _ = steps[0]
    with serving(ABACUS, *DISK, "--enable-scale-out", "--max-model-len", 8192, env=DEV) as server:
        prompt = server.post("/tokenize", {"model": "m", "prompt": PROMPT})[1]["tokens"]

        def generate(**more):
            params = {"temperature": 0, "ignore_eos": True, "max_tokens": 8, "logprobs": 1, **more}
            status, answer = server.post("/inference/v1/generate", {"token_ids": prompt, "sampling_params": params, "request_id": "r-1"})
            assert status == 200, answer
            return answer

        whole = generate(prompt_logprobs=1)
        completed = server.complete(prompt, max_tokens=8, ignore_eos=True, logprobs=1, return_token_ids=True)
        choice = whole["choices"][0]
        assert whole["request_id"] == "r-1" and choice["token_ids"] == completed["token_ids"] and choice["finish_reason"] == "length"
        assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == completed["logprobs"]["token_logprobs"]
        assert all(entry["top_logprobs"][0]["token_id"] == token for entry, token in zip(choice["logprobs"]["content"], choice["token_ids"], strict=True))
        assert choice["weight_versions"] == [{"version": "default", "start": 0, "end": 8}] and len(whole["prompt_logprobs"]) == len(prompt)
        assert whole["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 8, "total_tokens": len(prompt) + 8}
        answers = []
        before = server.metric("vllm:generation_tokens_total")
        thread = threading.Thread(target=lambda: answers.append(generate(max_tokens=6000, logprobs=None)))
        thread.start()
        wait_until(lambda: server.metric("vllm:generation_tokens_total") > before + 20, "nothing runs")
        server.post("/pause?mode=keep", None)
        kept = int(server.metric("vllm:generation_tokens_total") - before)
        update(server, folder, "v2")
        server.post("/resume", None)
        thread.join()
        assert answers[0]["choices"][0]["weight_versions"] == [{"version": "default", "start": 0, "end": kept}, {"version": "v2", "start": kept, "end": 6000}]
        for body, field in (({"sampling_params": {}}, "token_ids"), ({"token_ids": [1]}, "sampling_params"), ({"token_ids": [-1], "sampling_params": {}}, "token_ids"),
                            ({"token_ids": [1], "sampling_params": {"temperature": -1}}, "temperature"),
                            ({"token_ids": [1], "sampling_params": {}, "features": {}}, "features")):
            status, error = server.post("/inference/v1/generate", body)
            assert status == 400 and field in json.dumps(error)
        chunks = events(server.request("POST", "/inference/v1/generate", {
            "token_ids": prompt, "stream": True, "sampling_params": {"temperature": 0, "ignore_eos": True, "max_tokens": 8}})[2])
        assert chunks.pop() == "[DONE]"
        assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == generate()["choices"][0]["token_ids"]
    with serving(ABACUS) as server:
        assert server.post("/inference/v1/generate", {"token_ids": [1], "sampling_params": {}})[0] == 403


def test_weights_are_sent_in_pieces(steps, tmp_path):
    """Safetensors files are sent as request bodies. Answers are bit-identical to those of a server started with the files, also after
    sleep. No file remains on the disk."""
    with serving(ABACUS, *http(tmp_path), "--enable-sleep-mode", env=DEV) as server:
        for number, (folder, expected) in enumerate(steps * 2):
            assert server.post("/start_weight_update", None)[0] == 200
            for piece in pieces(folder, 3):
                status, answer = send(server, piece, **{"X-Content-SHA256": hashlib.sha256(piece).hexdigest()})
                assert status == 200 and answer["tensors"] > 1 and answer["bytes"] == len(piece), answer
            assert server.post("/finish_weight_update", {"weight_version": "step-%d" % number})[0] == 200
            assert scores(server) == expected
            assert len(list(tmp_path.iterdir())) == 1, "the pieces of the weights before are gone"
        info = json.loads(server.get("/weight_info?tensors=true")[1])
        header = json.loads((steps[1][0] / "model.safetensors").read_bytes()[8:].split(b"}}", 1)[0] + b"}}")
        assert info["weight_version"] == "step-3" and {tensor["name"]: (tensor["dtype"], tensor["shape"]) for tensor in info["tensors"]} == {
            name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
        assert json.loads(server.get("/weight_info")[1]) == {"weight_version": "step-3"}
        server.post("/sleep", None)
        server.post("/wake_up", None)
        assert scores(server) == steps[1][1], "the pieces are read again"
        update(server, steps[0][0])  # a folder
        assert scores(server) == steps[0][1] and not list(tmp_path.iterdir())
        server.post("/start_weight_update", None)
        send(server, next(pieces(steps[1][0], 3)))
    assert not list(tmp_path.iterdir()), "a server that ends takes what was open with it"


def test_an_upload_that_is_cut_leaves_the_old_weights(steps, tmp_path):
    folder, expected = steps[0]
    with serving(ABACUS, *http(tmp_path), env=DEV) as server:
        before = scores(server)
        sent = list(pieces(folder, 2))
        assert send(server, sent[0])[0] == 400, "no update is open"
        server.post("/start_weight_update", None)
        assert send(server, sent[0])[0] == 200
        # The connection breaks in the middle of the second piece.
        with socket.create_connection(("127.0.0.1", server.port)) as broken:
            broken.sendall(b"POST /update_weights HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
                           % len(sent[1]) + sent[1][:len(sent[1]) // 2])
        status, error = server.post("/finish_weight_update", None)
        assert status == 400 and "the old weights remain in use" in error["error"]["message"], error
        assert scores(server) == before and not list(tmp_path.iterdir())
        server.post("/start_weight_update", None)
        assert send(server, sent[0])[0] == 200
        for piece, headers, words in ((sent[1][:-1], {}, "not a complete safetensors file"), (b"", {}, "not a complete safetensors file"),
                                      (sent[1], {"X-Content-SHA256": "0" * 64}, "SHA-256")):
            status, error = send(server, piece, **headers)
            assert status == 400 and words in error["error"]["message"], error
            assert scores(server) == before
        assert server.post("/update_weights", {"update_info": {"path": str(folder)}})[0] == 400, "a folder beside pieces"
        assert send(server, sent[1])[0] == 200, "a piece may be sent again"
        assert scores(server) == before, "nothing changes before the end of an update"
        assert server.post("/finish_weight_update", None)[0] == 200
        assert scores(server) == expected
    with serving(ABACUS, *http(tmp_path, max_bytes=len(sent[0]) + 1), env=DEV) as server:
        server.post("/start_weight_update", None)
        assert send(server, sent[0])[0] == 200
        status, error = send(server, sent[1])
        assert status == 413 and "max_bytes" in error["error"]["message"], error
        assert scores(server) == before
    with serving(ABACUS, *DISK, env=DEV) as server:
        server.post("/start_weight_update", None)
        status, error = send(server, sent[0])
        assert status == 400 and "http" in error["error"]["message"]
    for value in ({"backend": "http", "folder": "relative"}, {"backend": "http", "max_bytes": 0}, {"backend": "http", "url": "x"},
                  {"backend": "disk", "folder": "/tmp"}):
        refused = run("serve", ABACUS, "--port", 0, "--weight-transfer-config", json.dumps(value))
        assert refused.returncode == 2 and "--weight-transfer-config" in refused.stderr, refused.stderr
