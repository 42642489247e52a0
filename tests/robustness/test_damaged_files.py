"""Damaged model files and invalid configurations. The names contain the ids of the cases in docs/security.md."""
import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import time

import pytest

from serving import ABACUS, DATA, at_once, command, deaf_port, run

LLAMA = DATA / "checkpoints" / "llama-bf16"


@pytest.fixture
def folder(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(LLAMA, copy)
    for path in copy.iterdir():
        path.chmod(0o644)
    return copy


def start(folder, *flags):
    """Runs a short completion; returns (exit code, error output)."""
    result = run("complete", folder, "-q", "Tom", "--max-tokens", 1, "--max-model-len", 64, "--num-gpu-blocks-override", 8, *flags, timeout=60)
    assert result.returncode >= 0, (result.returncode, result.stderr[-2000:])
    return result.returncode, result.stderr


def test_b07_bytes_that_flip_and_files_that_end(folder):
    """A damaged header is an error, or is read as it is. Damaged data changes numbers but never crashes the program."""
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    header_size = 8 + struct.unpack("<Q", whole[:8])[0]
    seeds = random.Random(7)
    for i in range(100):
        damaged = bytearray(whole)
        offset = seeds.randrange(8 if i % 4 else header_size) if i % 2 else seeds.randrange(len(whole))
        damaged[offset] ^= 1 << seeds.randrange(8)
        path.write_bytes(damaged)
        code, said = start(folder)
        assert code in (0, 1, 3, 4), (offset, said[-500:])
        if offset < 8:
            assert code == 3
    for _ in range(40):
        path.write_bytes(whole[:seeds.randrange(len(whole))])
        code, said = start(folder)
        assert code == 3 and "model.safetensors" in said, said[-500:]
    path.write_bytes(whole + b"x")
    assert start(folder)[0] == 3


@pytest.mark.parametrize("where", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"])
def test_b03_b04_v12_files_of_the_wrong_kind(folder, where):
    """Replaces each file of a model by a folder, a pipe, a link to itself, no file, or other text: the error names the file."""
    path = folder / where
    contents = path.read_bytes()
    for bad in (b"", b"\0" * 4096, b"[]", b"5", b"{", b"[" * 100_000, contents[:len(contents) // 2], b"\xff" * 100, b'{"a":' * 50_000):
        path.write_bytes(bad)
        code, said = start(folder)
        assert code == 3 and (where in said or where == "model.safetensors"), said[-500:]
    path.unlink()
    path.symlink_to(where)
    assert start(folder)[0] == 3
    path.unlink()
    os.mkfifo(path)
    assert start(folder)[0] == 3
    path.unlink()
    path.mkdir()
    assert start(folder)[0] == 3


def test_b04_numbers_of_the_configuration(folder):
    """Sets fields to 0, to negative or huge numbers, or to another type: the error names the field, and sizes that overflow are
    rejected."""
    config = json.loads((folder / "config.json").read_text())
    sizes = {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size", "intermediate_size"}
    numbers = {name for name, value in config.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    for name in sorted(numbers | sizes):
        for value in (0, -1, 2**31, 2**62, 2**63, 2**64, 1e308, math.nan, math.inf, 1.5, "7", [], {}, True):
            (folder / "config.json").write_text(json.dumps({**config, name: value}))
            if name in sizes and value in (0, -1, 1.5, "7", [], {}):
                code, said = start(folder)
                assert code == 3 and re.search("%s|tensor" % name, said), (name, value, code, said)
            else:
                assert run("inspect", folder, timeout=60).returncode >= 0, (name, value)


OPTIONS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "options.md"


def rows_of_serve():
    for line in OPTIONS.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and "serve" in cells[4].split(", ") and cells[0].startswith("`--") and "trtllm" not in cells[5]:
            yield re.match("`(--[a-z0-9_-]+)`", cells[0])[1], cells[1]


def test_c01_options_with_bad_values():
    """Sets every option of `serve` to values that are invalid for its type. The program soon ends with exit code 2 (3 to 5 if the error
    depends on the model or the machine), and the error names the option."""
    cases = []
    for name, kind in rows_of_serve():
        if kind == "integer":
            bad = ["many", "1.5x", "NaN", "12 apples", "9" * 40, "0x10z"]
        elif kind == "number":
            bad = ["many", "NaN", "1.5.5", "--"]
        elif kind == "bytes":
            bad = ["many", "5 apples", "-5", "NaN", "9" * 40]
        elif kind == "JSON":
            bad = ["{", "{]", "nul", "{\"a\":}"]
        elif kind == "flag":
            bad = []
        elif "\\|" in kind:
            bad = ["nonsense", "auto auto"]
        else:
            continue
        cases += [(name, kind, value) for value in bad]

    def one(case):
        name, kind, value = case
        begin = time.monotonic()
        # If the value is accepted, the exit code is 6, since the port is in use.
        flags = [] if name == "--port" else ["--port", deaf_port()]
        result = subprocess.run(command("serve", LLAMA, "--host", "127.0.0.1", *flags, name + "=" + value), capture_output=True, text=True, timeout=60)
        return case, result.returncode, result.stderr, time.monotonic() - begin

    assert len(cases) > 100
    for part in [cases[i:i + 8] for i in range(0, len(cases), 8)]:
        for case, code, said, taken in at_once([lambda c=c: one(c) for c in part]):
            assert code in (2, 3, 4, 5) and case[0] in said, (case, code, said[-500:])
            assert taken < 30, case


def test_c03_what_does_not_fit_together():
    for flags, words in ((("--max-model-len", 10**12), "max.model.len"), (("--max-num-seqs", 10**9), "max.num.seqs|memory"),
                         (("--max-num-batched-tokens", 1, "--max-num-seqs", 64), "max.num.batched.tokens"),
                         (("--kv-cache-memory-bytes", "1KiB"), "kv.cache|max.model.len"),
                         (("--block-size", 10**6), "block.size"), (("--gpu-memory-utilization", "0.0001"), "memory"),
                         (("--threads", 10**7), "threads")):
        result = run("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, *flags, timeout=60)
        assert result.returncode in (2, 3, 4), (flags, result.returncode, result.stderr[-500:])
        assert re.search(words, result.stderr), (flags, result.stderr[-500:])
