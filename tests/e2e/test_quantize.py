"""`sluice quantize` and `sluice diff` as a user runs them, and serving the result."""
import json

import pytest

from serving import ABACUS, DATA, run, serving

LLAMA = DATA / "checkpoints" / "llama-bf16"
HELD_OUT = ABACUS / "heldout.jsonl"


def quantize(source, out, *words):
    return run("quantize", source, out, *words)


@pytest.fixture(scope="module")
def nvfp4(tmp_path_factory):
    out = tmp_path_factory.mktemp("quantized") / "abacus-nvfp4"
    result = quantize(ABACUS, out, "--to", "modelopt-nvfp4", "--kv-cache", "fp8", "--calibrate", HELD_OUT, "--calibrate-tokens", 4096, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["quantized_modules"] == 4 * 7
    assert 0.05 < report["relative_error"] < 0.15
    return out


def test_the_result_says_what_it_is_and_is_close(nvfp4):
    described = json.loads(run("inspect", nvfp4, "--json").stdout)
    assert described["supported"] and described["scheme"] == "ModelOpt NVFP4" and described["fp8_kv_cache"]
    result = run("diff", ABACUS, nvfp4, "--text", HELD_OUT, "--tokens", 2000, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert 0 < found["kl_divergence"] < 0.05 and found["top1_agreement"] > 0.93
    assert 1 < found["perplexity_a"] < found["perplexity_b"] * 1.01
    assert found["weights"]["model.embed_tokens"] == 0 and 0.05 < found["weights"]["model.layers.0.mlp.up_proj"] < 0.15


def test_the_result_is_served_with_its_own_cache(nvfp4):
    with serving(nvfp4, "--quantization", "modelopt_fp4") as server:
        status, answer = server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tom has 3 apples and buys 5 more. How many apples does he have now?"}],
            "temperature": 0, "max_tokens": 60})
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"].endswith("#### 8")


@pytest.mark.parametrize("words", [("--quantization", "fp8"), ("-q", "int8"), ("--quantization", "fp8_per_block", "--head-format", "int8")])
def test_weights_are_rounded_while_loading(words):
    result = run("diff", ABACUS, ABACUS, *words, "--text", HELD_OUT, "--tokens", 2000, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert 0 < found["kl_divergence"] < 0.01 and found["top1_agreement"] > 0.97
    assert (found["weights"]["model.embed_tokens"] > 0) == ("--head-format" in words)
    with serving(ABACUS, *words) as server:
        status, answer = server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tom has 3 apples and buys 5 more. How many apples does he have now?"}],
            "temperature": 0, "max_tokens": 60})
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"].endswith("#### 8")


def test_what_cannot_be_rounded_is_refused_at_start():
    for words, says in ((("--quantization", "gptq"), "is not quantized (BF16)"), (("--head-format", "fp8", "--device", "emulated"), "--head-format")):
        result = run("serve", ABACUS, *words, "--port", 0)
        assert result.returncode != 0 and says in result.stderr, result.stderr


def test_a_model_is_no_different_from_itself():
    found = json.loads(run("diff", LLAMA, LLAMA, "--json").stdout)
    assert set(found["weights"].values()) == {0.0}


@pytest.mark.parametrize("words, says", [
    (["--to", "modelopt-fp8"], "--calibrate"),
    (["--to", "gguf"], "gguf"),
    ([], "--to is missing"),
    (["--to", "block-fp8", "--group-scales", "mse"], "--group-scales"),
    (["--to", "block-fp8", "--input-percentile", "99"], "--input-percentile"),
    (["--to", "block-fp8", "--calibrate", HELD_OUT], "--calibrate changes nothing"),
    (["--to", "block-fp8", "--exclude", "re:x{,3}"], "--exclude"),
])
def test_refusals(tmp_path, words, says):
    result = quantize(ABACUS, tmp_path / "out", *words)
    assert result.returncode in (2, 3), result.stderr
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    result = quantize(ABACUS, tmp_path / "out", "--to", "block-fp8")
    assert result.returncode == 2 and "nothing is overwritten" in result.stderr


def test_quantize_once(tmp_path, nvfp4):
    result = quantize(nvfp4, tmp_path / "out", "--to", "fp8-dynamic")
    assert result.returncode == 3 and "already quantized (ModelOpt NVFP4)" in result.stderr


def test_the_option_is_an_assertion(nvfp4):
    result = run("serve", nvfp4, "--quantization", "fp8", "--port", 0)
    assert result.returncode == 2 and "the checkpoint is modelopt_fp4 (ModelOpt NVFP4)" in result.stderr
