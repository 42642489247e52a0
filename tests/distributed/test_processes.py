"""Ranks as processes on one machine: answers equal those of one process, and errors are reported when a rank fails or differs from the
others."""
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest
from ranks import (
    MPI,
    TOLD_S,
    Stream,
    answers,
    children,
    expect_told,
    family,
    name_of,
    none_left,
    ranks_of,
    stop_and_tell,
)

from serving import ABACUS, DATA, ROOT, command, serving, wait_until

CHECKPOINTS = DATA / "checkpoints"
# Prompts are token ids, so any tokenizer works.
SMALL = ("--tokenizer", CHECKPOINTS / "llama-bf16", "--max-model-len", 512, "--max-num-batched-tokens", 64, "--max-num-seqs", 8)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Maximum time from the start of a command to its error.
REFUSED_S = 30


@contextlib.contextmanager
def two_ranks(*flags):
    with serving(ABACUS, "--max-model-len", 4096, "-tp", 2, *MPI, *flags) as server:
        processes = family(server.process.pid)
        yield server
    none_left(processes)


def refused(*words, code=None, env=None, argv=None):
    """The error output of a command that must fail before it serves."""
    start = time.monotonic()
    result = subprocess.run(argv or command("serve", *words), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
                            env={**os.environ, **(env or {})})
    assert time.monotonic() - start < REFUSED_S
    assert result.returncode == code if code else result.returncode, result.stderr
    return result.stderr


@pytest.mark.parametrize("folder", ["llama-bf16", "qwen3-modelopt-fp8", "llama4-modelopt-nvfp4", "qwen3-moe-quark-mxfp4", "qwen3-llmc-int8-w8a8"])
def test_answers_are_equal_bit_by_bit(folder):
    rng = random.Random(folder)
    prompts = [[rng.randrange(100) for _ in range(length)] for length in (5, 33, 90, 130)]
    prompts += [prompts[2][:64] + [7, 8, 9]]
    with serving(CHECKPOINTS / folder, *SMALL) as server:
        expected = answers(server, prompts)
    for cut in (["-tp", 2], ["-tp", 3], ["-pp", 2], ["-tp", 2, "-pp", 2]):
        with serving(CHECKPOINTS / folder, *SMALL, *cut, *MPI) as server:
            assert answers(server, prompts) == expected, cut


def test_models_that_pool_are_equal_bit_by_bit():
    def vectors(*flags):
        with serving(CHECKPOINTS / "qwen3-bf16", "--runner", "pooling", "--max-model-len", 128, *flags) as server:
            status, answer = server.post("/v1/embeddings", {"model": "m", "input": ["one", "two beads", "the third text"]})
            assert status == 200, answer
            return [entry["embedding"] for entry in answer["data"]]

    expected = vectors()
    for cut in (["-tp", 2], ["-tp", 2, "-pp", 2]):
        assert vectors(*cut, *MPI) == expected
    assert "an encoder has only one rank" in refused(CHECKPOINTS / "tiny-bert", "-tp", 2, *MPI)


def test_adapters_are_loaded_on_all_ranks(tmp_path):
    adapters = DATA / "adapters"
    flags = (CHECKPOINTS / "qwen3-bf16", "--max-model-len", 256, "--enable-lora", "--max-cpu-loras", 2, "--lora-modules", "a=%s" % (adapters / "qwen3-linear"))

    def ask(server, model):
        status, answer = server.post("/v1/completions", {"model": model, "prompt": list(range(5, 60)), "max_tokens": 12, "temperature": 0, "logprobs": 2,
                                                         "ignore_eos": True, "return_tokens_as_token_ids": True})
        assert status == 200, answer
        return answer["choices"][0]["logprobs"]

    def load(server, name, path):
        return server.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})

    runtime = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with serving(*flags, env=runtime) as server:
        assert load(server, "b", adapters / "qwen3-stabilized")[0] == 200
        expected = [ask(server, model) for model in ("m", "a", "b")]
    for cut in (["-tp", 2], ["-pp", 2]):
        with serving(*flags, *cut, *MPI, env=runtime) as server:
            assert load(server, "b", adapters / "qwen3-stabilized")[0] == 200
            assert [ask(server, model) for model in ("m", "a", "b")] == expected
            status, _, text = load(server, "c", adapters / "llama-vocabulary")
            assert status == 400 and b"different base model" in text
            assert server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "a"})[0] == 200
            assert server.post("/v1/completions", {"model": "a", "prompt": "x"})[0] == 404
            assert ask(server, "b") == expected[2]


def test_mpirun_of_the_user_is_recognised(abacus_answers):
    with serving_under("mpirun", "--oversubscribe", "-n", "2") as server:
        assert answers(server) == abacus_answers
        ranks = ranks_of(server)
        stream = Stream(server)
        since = stop_and_tell(ranks[1])
        expect_told(server, stream, since, "rank 1 (process %d" % ranks[1])
        none_left(ranks)


@pytest.fixture(scope="module")
def abacus_answers():
    with serving(ABACUS) as server:
        return answers(server)


@contextlib.contextmanager
def serving_under(*launcher, model=ABACUS, flags=()):
    import serving as helpers
    plain = helpers.command
    helpers.command = lambda *words, **kw: [*launcher, *plain(*words, **kw)]
    try:
        with serving(model, *flags, "-tp", 2, env=AS_ROOT) as server:
            yield server
    finally:
        helpers.command = plain


@pytest.mark.parametrize("busy", [True, False])
def test_m01_a_stopped_rank_is_noticed_by_its_silence(busy):
    with two_ranks() as server:
        rank = ranks_of(server)[1]
        stream = Stream(server) if busy else None
        since = stop_and_tell(rank, signal.SIGSTOP)
        expect_told(server, stream, since, "rank 1 (process %d" % rank, "was not heard of")


def test_m01_m07_a_rank_that_takes_too_long_is_named():
    # The pause is longer than the time limit of a step, but shorter than the silence after which a rank
    # counts as lost.
    with two_ranks("--distributed-timeout-seconds", 1) as server:
        rank = ranks_of(server)[1]
        stream = Stream(server)
        since = stop_and_tell(rank, signal.SIGSTOP)
        reasons = expect_told(server, stream, since, "rank 1 did not reach")
        assert reasons and "within 1 s" in reasons[0]


def test_m01_rank_0_is_killed():
    with two_ranks() as server:
        stream = Stream(server)
        stop_and_tell(ranks_of(server)[0])
        stream.thread.join(TOLD_S)
        assert not stream.thread.is_alive()
        assert server.process.wait(60) != 0


def test_m02_the_parent_is_killed():
    with two_ranks() as server:
        stream = Stream(server)
        server.process.kill()
        server.process.wait()
        assert "has ended" in str(stream.error())


def test_m02_mpirun_is_killed():
    with two_ranks() as server:
        stream = Stream(server)
        (launcher,) = [pid for pid in children(server.process.pid) if name_of(pid) == "mpirun"]
        since = stop_and_tell(launcher)
        stream.thread.join(60)
        assert time.monotonic() - since < TOLD_S
        assert server.process.wait(60) != 0


def test_a_drain_lets_answers_finish():
    with two_ranks() as server:
        stream = Stream(server, tokens=200)
        assert server.stop() == 0
        assert stream.error() is None
        assert b"[DONE]" in stream.text


def test_sighup_reloads_rank_0(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a\n")
    keys.chmod(0o600)
    with two_ranks("--api-key-file", keys) as server:
        assert server.get("/v1/models", headers={"Authorization": "Bearer b"})[0] == 401
        keys.write_text("b\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.get("/v1/models", headers={"Authorization": "Bearer b"})[0] == 200, "the keys are not read again")


def test_a_taken_port_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(ABACUS, "-tp", 2, *MPI, "--host", "127.0.0.1", "--port", port)
        assert str(port) in said


def test_more_ranks_than_heads_or_layers_are_refused():
    assert "tensor" in refused(ABACUS, "-tp", 64, *MPI)
    assert "pipeline" in refused(ABACUS, "-pp", 64, *MPI)


def test_missing_mpi_is_refused(tmp_path):
    assert "install Open MPI" in refused(ABACUS, "-tp", 2, *MPI, code=3, env={"PATH": str(tmp_path)})
    assert "SLUICE" not in refused(ABACUS, "-tp", 2, *MPI, env={"SLUICE_MPI_PLUGIN": str(tmp_path / "none.so")})
    assert "there is no MPI plugin" in refused(ABACUS, "-tp", 2, *MPI, env={"SLUICE_MPI_PLUGIN": str(tmp_path / "none.so")})


def write_llama(folder):
    """Writes a checkpoint of about 80 MB: numbers of both signs, small enough to compute with. Returns the number of bytes."""
    config = json.loads((CHECKPOINTS / "llama-bf16" / "config.json").read_text())
    hidden, wide, words, layers, heads, head = 512, 2048, 16384, 6, 8, 64
    config.update(hidden_size=hidden, intermediate_size=wide, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=4,
                  head_dim=head, tie_word_embeddings=False)
    config["vocab_size"] = words
    shapes = {"model.embed_tokens.weight": [words, hidden], "lm_head.weight": [words, hidden], "model.norm.weight": [hidden]}
    for layer in range(layers):
        of_layer = {"self_attn.q_proj": [heads * head, hidden], "self_attn.k_proj": [4 * head, hidden], "self_attn.v_proj": [4 * head, hidden],
                    "self_attn.o_proj": [hidden, heads * head], "mlp.gate_proj": [wide, hidden], "mlp.up_proj": [wide, hidden],
                    "mlp.down_proj": [hidden, wide], "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}
        shapes.update({"model.layers.%d.%s.weight" % (layer, name): shape for name, shape in of_layer.items()})
    head_text, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        head_text[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head_text).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        mask, base = int.from_bytes(b"\x7f\x80" * 4096, "little"), int.from_bytes(b"\x00\x3c" * 4096, "little")
        for left in range(end, 0, -8192):
            block = (int.from_bytes(os.urandom(8192), "little") & mask | base).to_bytes(8192, "little")
            file.write(block[:min(left, 8192)])
        file.flush()
        os.fsync(file.fileno())
    (folder / "config.json").write_text(json.dumps(config))
    return end


def test_a_rank_reads_its_rows_alone(tmp_path):
    """According to /proc, each rank reads from the disk only its half and the system's read-ahead. Each rank has its own copy of the files
    at the same path, not in the page cache."""
    folders = [tmp_path / str(rank) for rank in range(2)]
    folders[0].mkdir()
    size = write_llama(folders[0])
    shutil.copytree(*folders)
    (tmp_path / "model").mkdir()

    def forget():
        for folder in folders:
            descriptor = os.open(folder / "model.safetensors", os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def read_by(pid):
        lines = open("/proc/%d/io" % pid).read().splitlines()
        return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])

    flags = ("--tokenizer", CHECKPOINTS / "llama-bf16", "--max-model-len", 64, "--kv-cache-memory-bytes", "16M", "--threads", 1)
    forget()
    with serving(folders[0], *flags) as server:
        alone = read_by(server.process.pid)
    if alone < size:
        pytest.skip("the file system does not count what is read: %d of %d bytes" % (alone, size))
    forget()
    own_file = ["unshare", "-m", "sh", "-c", 'mount --bind "$0/$OMPI_COMM_WORLD_RANK" "$0/model" && exec "$@"', str(tmp_path)]
    with serving_under("mpirun", "--oversubscribe", "--bind-to", "none", "-q", "-n", "2", *own_file, model=tmp_path / "model", flags=flags) as server:
        read = [read_by(pid) for pid in ranks_of(server)]
    print("a file of %.1f MB; alone %.1f MB, by rank %s MB" % (size / 1e6, alone / 1e6, ["%.1f" % (n / 1e6) for n in read]))
    assert all(0.49 * size < n < 0.65 * size for n in read), (size, read)


def test_r06_shared_memory_that_is_too_small_is_refused():
    # A mount namespace in which /dev/shm has only 64 KiB, as in a badly configured container.
    small = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh"]
    said = refused(argv=[*small, *command("serve", ABACUS, "-tp", 2, "--port", 0, *MPI)])
    assert "/dev/shm has 64 KiB free, and 2 ranks on this machine exchange through 8192 KiB" in said and "--shm-size" in said
    launched = ["mpirun", "--oversubscribe", "-q", "-n", "2"]
    said = refused(argv=[*small, *launched, *command("serve", ABACUS, "-tp", 2, "--port", 0)], env=AS_ROOT)
    assert "/dev/shm has 64 KiB free" in said


def test_a_rank_without_memory_is_named():
    # Each rank has 1.2 GB of weights; rank 1's memory limit is lower.
    words = command("serve", ROOT / "benchmarks" / "llama-3.2-1b-shape", "--load-format", "dummy", "--tokenizer", CHECKPOINTS / "llama-bf16", "-tp", 2,
                    "--max-model-len", 256, "--kv-cache-memory-bytes", "16M", "--port", 0)
    small = ["sh", "-c", 'ulimit -d 800000; exec "$@"', "sh"]
    said = refused(argv=["mpirun", "--oversubscribe", "--bind-to", "none", "-q", "-n", "1", *words, ":", "-n", "1", *small, *words], env=AS_ROOT)
    assert "rank 1: " in said and "memory" in said


def under_mpirun(*commands):
    """Starts ranks with different commands; returns the error output."""
    argv = ["mpirun", "--oversubscribe", "--bind-to", "none", "-q"]
    for words in commands:
        argv += [*([":"] if len(argv) > 5 else []), "-n", "1", *command("serve", *words, "--port", 0)]
    return refused(argv=argv, env=AS_ROOT)


def test_m03_unlike_ranks_are_refused_by_name(tmp_path):
    assert "rank 1" in under_mpirun([ABACUS, "-tp", 2], [ABACUS, "-tp", 2, "--max-model-len", 100])
    other = tmp_path / "other"
    shutil.copytree(CHECKPOINTS / "llama-bf16", other)
    said = under_mpirun([CHECKPOINTS / "llama-bf16", "-tp", 2], [CHECKPOINTS / "tiny-llama-wide", "-tp", 2])
    assert "rank 1" in said and "model files" in said
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    assert "model files" in under_mpirun([CHECKPOINTS / "llama-bf16", "-tp", 2], [other, "-tp", 2])
    said = under_mpirun([ABACUS, "-tp", 2, "--cpu-isa", "avx2"], [ABACUS, "-tp", 2, "--cpu-isa", "reference"])
    assert "rank 1" in said and "--cpu-isa" in said


def test_m03_another_number_of_processes_is_refused():
    said = refused(argv=["mpirun", "--oversubscribe", "-q", "-n", "2", *command("serve", ABACUS, "-tp", 3, "--port", 0)], env=AS_ROOT)
    assert "the launcher started 2 processes" in said


def test_a_missing_file_on_one_rank_is_told_by_its_name(tmp_path):
    said = under_mpirun([ABACUS, "-tp", 2], [tmp_path / "none", "-tp", 2])
    assert "rank 1" in said and "none" in said
