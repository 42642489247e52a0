"""The published recipes, block by block, unchanged.

Exceptions: tests reduce the sizes of benchmarks, which would take hours. In recipe 004, requests name another model than the recipe
launches, so tests change the name. docs/recipes.md lists the blocks that are not run.

With SLUICE_TESTED_DEVICE=hip, recipe 003 runs on emulated GPUs: a stand-in replaces HIP's runtime (tests/run.py hip).
"""
import json
import re

import pytest
from recipe_place import (
    block_at,
    blocks,
    example,
    lacks,
    missing,
    place,
    smaller,
    table_lines,
)

from serving import ABACUS, DATA, ROOT, TESTED_DEVICE, run

CHECKPOINTS = DATA / "checkpoints"
# A question that the bundled model answers in every format.
SUM = "Question: Aisha owns 6 postcards and loses 2 of them. How many postcards does Aisha have left?\nAnswer:"
SUMS = ABACUS / "heldout.jsonl"
ENGINE = "needs a container engine"
NETWORK = "needs the network"
GPU = "needs a GPU driver"
# Shell blocks that no test runs, by recipe and line, with the reason.
NOT_RUN = {
    0: {43: NETWORK, 69: ENGINE},
    1: {36: ENGINE, 224: ENGINE, 253: "the command of line 234 with the model of a different launch", 304: "contains only options, which belong to the previous command"},
    2: {173: ENGINE, 442: GPU, 455: ENGINE, 514: "only comments", 628: GPU, 639: ENGINE, 647: ENGINE,
        708: "uses a folder on the author's machine", 714: ENGINE, 719: ENGINE},
    3: {41: ENGINE, 50: ENGINE, 75: NETWORK, 87: NETWORK, 97: NETWORK, 103: NETWORK},
    4: {42: ENGINE, 56: ENGINE},
}
RUN = {
    0: {82, 170, 185, 216},
    1: {60, 77, 187, 195, 234, 272, 314},
    2: {209, 228, 242, 256, 273, 303, 320, 416, 427, 495, 528, 541, 548, 555, 613, 618, 623, 660, 665, 671, 681, 686, 691, 702},
    3: {117, 139, 196, 233},
    4: {92, 161, 176, 206},
}

@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """The bundled model in the formats of the recipes' checkpoints, with scales for the cache."""
    folder = tmp_path_factory.mktemp("quantized")
    text = folder / "text.jsonl"
    rows = [json.loads(line) for line in SUMS.read_text().splitlines()[:40]]
    text.write_text("".join(json.dumps({"text": "Question: %(question)s\nAnswer: %(answer)s" % row}) + "\n" for row in rows))

    def make(layout):
        target = folder / layout
        if not target.exists():
            result = run("quantize", ABACUS, target, "--to", layout, "--kv-cache", "fp8", "--calibrate", text)
            assert result.returncode == 0, result.stderr
        return target

    return make


def shell_lines(number):
    return {block.line for block in blocks(number) if block.is_shell()}


@pytest.mark.parametrize("number", range(5))
def test_every_shell_block_is_run_or_listed(number):
    assert RUN[number].isdisjoint(NOT_RUN[number])
    lines = shell_lines(number) | {line for line, reason in NOT_RUN[number].items() if reason == "only comments"}
    assert lines == RUN[number] | set(NOT_RUN[number])
    page = (ROOT / "docs" / "recipes.md").read_text()
    for line, reason in NOT_RUN[number].items():
        assert re.search(r"^\| %03d \| %d \| .* \| %s \|$" % (number, line, re.escape(reason)), page, re.M), (line, reason)


def bench(place, number, script, like):
    """Runs a benchmark; its table must contain every line of the printed one, in order."""
    output = place.run(script)
    want = table_lines(block_at(number, like).text)
    assert want and lacks(want, table_lines(output)) is None, output
    assert re.search(r"^Successful requests: +\d+", output, re.M)
    return output


def scores(output):
    """The scores in lm_eval's table."""
    found = re.findall(r"\|(flexible-extract|strict-match) *\| *5\|exact_match\|↑ *\| *([0-9.]+)\|", output)
    assert len(found) == 2, output
    return {name: float(value) for name, value in found}


def test_000(tmp_path, quantized):
    model = "nvidia/Llama-3.3-70B-Instruct-FP4"
    with place(tmp_path, {model: quantized("modelopt-nvfp4")}) as p:
        p.add_lm_eval()
        with p.launched(block_at(0, 82).text, "http://127.0.0.1:8080"):
            answer = json.loads(p.run(block_at(0, 170).text))
            assert missing(example(0, "cmpl-"), answer) is None
            assert answer["model"] == model and answer["usage"]["completion_tokens"] <= 20
            scores(p.run(block_at(0, 185).text))
            assert (tmp_path / "pip.log").read_text() == "install lm-eval[api]==0.4.9.1\n"
            bench(p, 0, smaller(block_at(0, 216).text, random_input_len=48, random_output_len=24, num_prompts=96, max_concurrency=48),
                  245)
            result = json.loads((tmp_path / "vllm_benchmark_serving_results.json").read_text())
            assert result["completed"] == 96 and result["total_output_tokens"] == 96 * 24
        # The log reports that the variables for FlashInfer have no effect.
        assert "VLLM_ATTENTION_BACKEND" in p.log.read_text()


def test_000_on_hopper(tmp_path, quantized):
    with place(tmp_path, {"nvidia/Llama-3.3-70B-Instruct-FP8": quantized("modelopt-fp8")}, "9.0") as p:
        with p.launched(block_at(0, 82).text, "http://127.0.0.1:8080"):
            # The recipe's request names the model of the recipe's other branch.
            answer = json.loads(p.run(block_at(0, 170).text))
            assert answer["error"]["code"] == 404 and "Llama-3.3-70B-Instruct-FP4" in answer["error"]["message"]
            answer = json.loads(p.run(block_at(0, 170).text.replace("-FP4", "-FP8")))
            assert missing(example(0, "cmpl-"), answer) is None


def test_001(tmp_path, quantized):
    model = "nvidia/Llama-3.3-70B-Instruct-FP8"
    with place(tmp_path, {model: quantized("modelopt-fp8")}) as p:
        p.add_lm_eval()
        yaml, launch = block_at(1, 60).text, block_at(1, 77).text
        with p.launched(yaml + launch, "http://127.0.0.1:8000"):
            assert p.run(block_at(1, 187).text) == "Status: 200\n"
            answer = json.loads(p.run(block_at(1, 195).text))
            printed = example(1, "cmpl-")
            assert missing(printed, answer) is None
            assert list(answer["choices"][0]) == list(printed["choices"][0])
            scores(p.run(block_at(1, 234).text))
            # Run unchanged: the here-document expands its variables too early, so the script's loop is
            # empty.
            p.run(block_at(1, 272).text)
            assert p.run(block_at(1, 314).text) == ""
            script = block_at(1, 272).text.replace("<<EOF", "<<'EOF'")
            for old, new in (('"1 2 4 8 16 32 64 128 256"', '"1 4"'), ("isl=1024", "isl=48"), ("osl=1024", "osl=16")):
                assert old in script
                script = script.replace(old, new)
            p.run(script)
            output = bench(p, 1, block_at(1, 314).text, 320)
            assert len(re.findall("User throughput", output)) == 2


@pytest.fixture(scope="module")
def spark_words():
    """The arguments of the compose service's command."""
    text = block_at(2, 130).text
    words = re.findall(r'^\s+- "?([^"\n]+)"?$', text[text.index("command:"):text.index("volumes:")], re.M)
    assert words[:3] == ["vllm", "serve", "nvidia/Llama-3.3-70B-Instruct-FP8"]
    return words


def test_002(tmp_path, spark_words, quantized):
    model = "nvidia/Llama-3.3-70B-Instruct-FP8"
    with place(tmp_path, {model: quantized("modelopt-fp8")}) as p:
        words = [str(tmp_path / "hf" / "hub") if word == "/root/.cache/huggingface" else word for word in spark_words]
        with p.launched(" ".join(words), "http://127.0.0.1:8000"):
            assert json.loads(p.run(block_at(2, 416).text)) == {"status": "ok"}
            answer = json.loads(p.run(block_at(2, 303).text))
            assert answer["choices"][0]["message"]["role"] == "assistant" and answer["model"] == model
            # The document of the long request replaces its placeholder in brackets.
            long = block_at(2, 320).text.replace("[... 50K tokens of paper text ...]", "words " * 3000).replace("2048", "8")
            for _ in range(2):
                assert p.run(long).rstrip().endswith("data: [DONE]")
            metrics = p.run(block_at(2, 427).text)
            for name in re.findall(r"`(vllm:\w+)`", (DATA / "recipes" / "002-vllm-llama33-70b-dgx-spark.md").read_text()):
                assert re.search(r"^%s(_bucket)?[{ ]" % name, metrics, re.M), name
            assert float(re.search(r"^vllm:prefix_cache_hits_total\{[^}]*\} (\S+)", metrics, re.M)[1]) > 1000
            assert "gpu_cache_usage_perc{" in p.run(block_at(2, 528).text)
            assert "cache_usage_perc{" in p.run(block_at(2, 660).text)
            assert "num_requests_running{" in p.run(block_at(2, 691).text)
            assert p.run(block_at(2, 702).text) == "x\n"
            # The Python examples; the last one reads a file that the reader must supply.
            (tmp_path / "large_document.txt").write_text("def f(): pass\n" * 200)
            for line in (337, 360, 385):
                assert p.python(block_at(2, line).text.replace("max_tokens=2048", "max_tokens=32").replace("3072", "32"))


def test_002_options_that_it_recommends(tmp_path):
    """A server starts with each option that recipe 002 recommends."""
    fragments = [block for block in blocks(2) if block.is_options()]
    assert {block.line for block in fragments} <= RUN[2]
    with place(tmp_path, {"nvidia/Llama-3.3-70B-Instruct-FP8": ABACUS}) as p:
        for block in fragments:
            words = " ".join(line.split("#")[0].strip() for line in block.code())
            # Blocks for the longest context in the recipe, instead of a fraction of this machine's memory.
            with p.launched("vllm serve nvidia/Llama-3.3-70B-Instruct-FP8 --num-gpu-blocks-override 6200 --max-model-len 65536 " + words,
                            "http://127.0.0.1:8000"):
                pass


@pytest.mark.parametrize("line, model, layout", [
    (117, "amd/Llama-3.3-70B-Instruct-FP8-KV", "quark-fp8"),
    (139, "amd/Llama-3.3-70B-Instruct-MXFP4-Preview", "quark-mxfp4"),
])
def test_003(tmp_path, line, model, layout, quantized):
    with place(tmp_path, {model: quantized(layout)}) as p:
        with p.launched(block_at(3, line).text, "http://127.0.0.1:8000"):
            # The reader must set $model to the launched name, including the trailing slash if the launch
            # has one.
            served = re.search(r"vllm serve (\S+)", block_at(3, line).text)[1]
            body = {"model": served, "prompt": SUM, "max_tokens": 16, "temperature": 0}
            answer = json.loads(p.run("curl -s http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '%s'" % json.dumps(body)))
            assert answer["choices"][0]["text"].startswith(" There are 6 - 2 = 4 "), answer
            if TESTED_DEVICE == "hip":
                log = p.log.read_text()
                assert "on Fake MI355X 0" in log and "sequences or, padded, fewer" in log
                metrics = p.run("curl -s http://127.0.0.1:8000/metrics")
                assert float(re.search(r"^sluice:replayed_steps_total\S* (\S+)$", metrics, re.M)[1]) >= 5, metrics
            setting = 'model="%s"\n' % served
            script = setting + block_at(3, 233).text
            for old, new in (("input_tokens=8192", "input_tokens=64"), ("output_tokens=1024", "output_tokens=16"),
                             ("max_concurrency=64", "max_concurrency=16"), ("num_prompts=128", "num_prompts=32")):
                assert old in script
                script = script.replace(old, new.replace("=16", "=4").replace("=64", "=8").replace("=32", "=4") if TESTED_DEVICE == "hip" else new)
            bench(p, 3, script, 270)
            if layout == "quark-fp8" and TESTED_DEVICE != "hip":  # emulated kernels would take half an hour
                p.add_lm_eval()
                # lm_eval also loads the tokenizer by this name, which must not end in a slash.
                scores(p.run('model="%s"\n' % model + block_at(3, 196).text))


@pytest.mark.parametrize("capability, model, checkpoint", [
    ("10.0", "nvidia/Llama-4-Scout-Instruct-FP4", CHECKPOINTS / "llama4-modelopt-nvfp4"),
    ("9.0", "nvidia/Llama-4-Scout-Instruct-FP8", CHECKPOINTS / "llama4-quark-fp8"),
])
def test_004(tmp_path, capability, model, checkpoint):
    with place(tmp_path, {model: checkpoint}, capability) as p:
        for name, line in (("Llama4_Blackwell.yaml", 69), ("Llama4_Hopper.yaml", 79)):
            (tmp_path / name).write_text(block_at(4, line).text)
        with p.launched(block_at(4, 92).text, "http://127.0.0.1:8000"):
            asked = re.compile(r"nvidia/Llama-4-Scout-17B-16E-Instruct-FP[48]")
            answer = json.loads(p.run(block_at(4, 161).text))
            assert answer["error"]["code"] == 404 and asked.search(answer["error"]["message"]), answer
            assert model in answer["error"]["message"]  # suggests the correct name
            answer = json.loads(p.run(asked.sub(model, block_at(4, 161).text)))
            assert missing(example(4, "cmpl-"), answer) is None
            bench(p, 4, smaller(asked.sub(model, block_at(4, 206).text), random_input_len=96, random_output_len=16, num_prompts=32,
                                max_concurrency=16), 235)
            if capability == "10.0":
                p.add_lm_eval(6)
                scores(p.run(asked.sub(model, block_at(4, 176).text)))


@pytest.mark.parametrize("name, sizes", [
    ("000-vllm-llama33-70b-nvidia", "INPUT_LEN=32 OUTPUT_LEN=8 CONCURRENCY=4"),
    ("001-trtllm-llama33-70b-nvidia", "INPUT_LEN=32 OUTPUT_LEN=8 CONCURRENCIES='1 4' ROUNDS=2 RESULT_DIR=results"),
    ("002-vllm-llama33-70b-dgx-spark", "INPUT_LEN=32 OUTPUT_LEN=8 CONCURRENCIES='1 4' ANSWER_TOKENS=8"),
    ("003-vllm-llama33-70b-amd-mi355", "INPUT_LEN=32 OUTPUT_LEN=8 CONCURRENCY=4"),
    ("004-vllm-llama4-scout-nvidia", "INPUT_LEN=32 OUTPUT_LEN=8 CONCURRENCY=4"),
])
def test_the_scripts_follow_them(tmp_path, name, sizes):
    with place(tmp_path, {}) as p:
        p.stand_in("lm_eval", 'echo "$*" > %s' % (tmp_path / "lm_eval.log"))
        output = p.run("%s MODEL=%s %s/recipes/%s.sh" % (sizes, ABACUS, ROOT, name))
        assert "Serving Benchmark Result" in output and '"object":"' in output.replace('": "', '":"')
        assert "Failed requests:                         0" in output or "001" in name
        if "002" not in name:
            assert "--tasks gsm8k" in (tmp_path / "lm_eval.log").read_text()
        assert p.shell("curl -s http://127.0.0.1:8000/health http://127.0.0.1:8080/health").returncode != 0, "the server is still there"
        assert p.shell("%s/recipes/%s.sh sing" % (ROOT, name)).returncode == 2


def test_a_script_does_not_take_another_server_for_its_own(tmp_path):
    with place(tmp_path, {}) as p:
        (tmp_path / "health").write_text("")
        # Starts the web server on a port that the system chooses and the program prints.
        result = p.shell("python -u -m http.server 0 --bind 127.0.0.1 >said 2>log & server=$!\n"
                         "until port=$(grep -o 'port [0-9]*' said); do sleep 0.05; done\n"
                         "PORT=${port#port } MODEL=%s %s/recipes/000-vllm-llama33-70b-nvidia.sh; code=$?; kill $server; exit $code"
                         % (ABACUS, ROOT))
        assert result.returncode == 1 and "answers at http://127.0.0.1:" in result.stderr and "already" in result.stderr
        assert "/v1/" not in (tmp_path / "log").read_text()


def test_the_compose_file_is_the_recipes(spark_words):
    service = block_at(2, 130).text.replace("nvcr.io/nvidia/vllm:25.09-py3", "sluice")
    written = (ROOT / "deploy" / "compose.yaml").read_text()
    body = written[written.index("services:\n") + len("services:\n"):]
    assert "".join(line[2:] for line in body.splitlines(keepends=True)) == service


@pytest.mark.parametrize("number, words", [
    (0, ["the launch serves nvidia/Llama-3.3-70B-Instruct-FP8", "42.71 GB of weights"]),
    (1, ["before the script that sets them has run", "72.65 GB of weights"]),
    (2, ["35 GB is not the size of Llama 3.3 70B's weights", "no 5-7 tok/s are possible"]),
    (3, ["$model is used, and nothing sets it", "40.57 GB of weights"]),
    (4, ["no launch serves that", "63.59 GB of weights"]),
])
def test_lint(number, words):
    path = next((DATA / "recipes").glob("%03d-*.md" % number))
    result = run("recipe", "lint", path)
    assert result.returncode == (1 if "error:" in result.stdout else 0), result.stderr
    for text in words:
        assert text in result.stdout
    assert run("recipe", "lint", path, "--strict").returncode == (1 if re.search("(error|warning):", result.stdout) else 0)
    findings = json.loads(run("recipe", "lint", path, "--json").stdout)["findings"]
    assert len(findings) == len(re.findall(r"\]$", result.stdout, re.M))
