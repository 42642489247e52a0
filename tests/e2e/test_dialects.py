"""The program under the names vllm and trtllm-serve: command lines, startup lines, batch files, launch commands of recipes."""
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import urllib.request

import pytest

from serving import ABACUS, BIN, DATA, PATIENCE_S, end, run, serving, wait_until_ready

# The launch commands of the recipes, unchanged except for the port, which the test chooses.
LLAMA33 = """\
FUSION_FLAG='{"pass_config":{"enable_fi_allreduce_fusion":true,"enable_noop":true},"custom_ops":["+quant_fp8","+rms_norm"],"full_cuda_graph":true}'
ASYNC_SCHEDULING_FLAG="--async-scheduling"
export VLLM_ATTENTION_BACKEND=FLASHINFER
export VLLM_USE_TRTLLM_ATTENTION=1
exec vllm serve nvidia/Some-Model-FP4 \\
  --host 0.0.0.0 \\
  --port PORT \\
  --tokenizer nvidia/Some-Model-FP4 \\
  --kv-cache-dtype KV \\
  --trust-remote-code \\
  --gpu-memory-utilization 0.2 \\
  --compilation-config $FUSION_FLAG \\
  $ASYNC_SCHEDULING_FLAG \\
  --enable-chunked-prefill \\
  --no-enable-prefix-caching \\
  --pipeline-parallel-size 1 \\
  --tensor-parallel-size 1 \\
  --max-num-seqs 512 \\
  --max-num-batched-tokens 8192 \\
  --max-model-len 2048
"""
TRTLLM = """\
cat << EOF > config.yml
enable_attention_dp: false
cuda_graph_config:
  enable_padding: true
  max_batch_size: 1024
kv_cache_config:
  dtype: KV
EOF
exec trtllm-serve nvidia/Some-Model-FP4 \\
    --host 0.0.0.0 \\
    --port PORT \\
    --max_batch_size 1024 \\
    --max_num_tokens 2048 \\
    --max_seq_len 2048 \\
    --kv_cache_free_gpu_memory_fraction 0.2 \\
    --tp_size 1 \\
    --ep_size 1 \\
    --trust_remote_code \\
    --extra_llm_api_options config.yml
"""
AMD = """\
export SAFETENSORS_FAST_GPU=1
export VLLM_ROCM_USE_AITER=1
export VLLM_USE_V1=1
export NCCL_DEBUG=WARN
export VLLM_RPC_TIMEOUT=1800000

exec vllm serve nvidia/Some-Model-FP4/ \\
    --tensor-parallel-size 1 \\
    --max-num-batched-tokens 32768 \\
    --port PORT \\
    --trust-remote-code \\
    --no-enable-prefix-caching \\
    --disable-log-requests \\
    --gpu_memory_utilization 0.2 \\
    --async-scheduling \\
    --load-format safetensors \\
    --compilation-config '{"cudagraph_mode":"FULL_AND_PIECEWISE", "custom_ops": ["-rms_norm", "-quant_fp8", "-silu_and_mul"]}' \\
    --kv-cache-dtype KV \\
"""
YAML = """\
cat << 'EOF' > Blackwell.yaml
kv-cache-dtype: KV
compilation-config: '{"pass_config":{"enable_fi_allreduce_fusion":true,"enable_attn_fusion":true,"enable_noop":true},"custom_ops":["+quant_fp8","+rms_norm"],"cudagraph_mode":"FULL_DECODE_ONLY","splitting_ops":[]}'
async-scheduling: true
no-enable-prefix-caching: true
max-num-batched-tokens: 8192
max-model-len: 2048
EOF
export VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB='{"2":32,"4":32,"8":8}'
YAML_CONFIG="Blackwell.yaml"
exec vllm serve nvidia/Some-Model-FP4 \\
  --config ${YAML_CONFIG} --port PORT \\
  --tensor-parallel-size 1 \\
  --max-num-seqs 512
"""


def in_cache(folder, name, source):
    """Makes a Hugging Face cache in which `name` is `source`."""
    repo = folder / "hub" / ("models--" + name.replace("/", "--"))
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("0" * 40)
    (repo / "snapshots").mkdir()
    shutil.copytree(source, repo / "snapshots" / ("0" * 40))


@contextlib.contextmanager
def launched(script, folder):
    """Runs a launch block on a port that the system chooses; yields the log and the port once it serves."""
    log = folder / "server.log"
    env = {**os.environ, "HF_HOME": str(folder), "PATH": "%s:%s" % (BIN, os.environ["PATH"])}
    with open(log, "w") as out:
        process = subprocess.Popen(["bash", "-c", script], cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL)
    try:
        yield log, wait_until_ready(process, log)
    finally:
        end(process)


@pytest.mark.parametrize("script, words", [
    (LLAMA33, ["non-default args: {'model_tag': 'nvidia/Some-Model-FP4'", "now pass_config.eliminate_noops",
               "VLLM_ATTENTION_BACKEND: replaced by --attention-backend", "Application startup complete."]),
    (TRTLLM, ["[TRT-LLM] [I]", "cuda_graph_config.enable_padding (--cudagraph-padding)", "needs --device cuda, hip or emulated", "cuda_graphs have no effect on a CPU",
              "kv_cache_config.dtype: --kv-cache-dtype", "Application startup complete."]),
    (AMD, ["--disable-log-requests has no effect: requests are logged only with", "SAFETENSORS_FAST_GPU: files", "VLLM_ROCM_USE_AITER: "]),
    (YAML, ["Blackwell.yaml:", "splitting_ops", "Application startup complete."]),
], ids=["nvidia", "trtllm", "amd", "yaml"])
def test_launches_of_the_recipes(tmp_path, script, words):
    in_cache(tmp_path, "nvidia/Some-Model-FP4", ABACUS)
    with launched(script.replace("PORT", "0").replace("KV\n", "fp8\n").replace("KV ", "fp8 "), tmp_path) as (log, port):
        with urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        with urllib.request.urlopen("http://127.0.0.1:%d/v1/models" % port, timeout=PATIENCE_S) as answer:
            names = [card["id"] for card in json.load(answer)["data"]]
        assert "nvidia/Some-Model-FP4" in names
        if script is AMD:  # clients copy the name with its trailing slash
            assert "nvidia/Some-Model-FP4/" in names
    text = log.read_text()
    for word in words:
        assert word in text, text


BAD_LINES = [
    (["serve", ABACUS, "--bogus-flag"], 2, "vllm serve: error: unrecognized arguments: --bogus-flag"),
    (["serve", ABACUS, "--max-model-len", "abc"], 2, "vllm serve: error: --max-model-len: expected a whole number"),
    (["serve", ABACUS, "--dtype", "float99"], 2, "vllm serve: error: --dtype: expected auto, bfloat16"),
    (["serve", "/nonexistent/model", "--port", "0"], 1, "error: model '/nonexistent/model' is neither a folder that exists nor"),
    (["serve", ABACUS, "--port", "99999"], 1, "vllm serve: error: --port: expected 0 to 65535, found 99999"),
    (["bogus"], 2, "vllm: error: unknown command 'bogus'"),
    (["bench", "startup"], 2, "vllm: error: unknown command 'bench startup'"),
    (["serve", ABACUS, "--enable-auto-tool-choice"], 1, "error: --enable-auto-tool-choice requires --tool-call-parser"),
]


@pytest.mark.parametrize("words, code, line", BAD_LINES, ids=[" ".join(map(str, words[2:] or words)) for words, _, _ in BAD_LINES])
def test_bad_command_lines_of_vllm(words, code, line):
    result = run(*words, program="vllm")
    assert result.returncode == code
    lines = result.stderr.splitlines()
    assert lines[-1].startswith(line)
    assert code != 2 or lines[0].startswith("usage: vllm ")


def test_failures_at_start_of_vllm():
    too_long = run("serve", ABACUS, "--max-model-len", 10**8, "--port", 0, program="vllm")
    assert too_long.returncode == 1
    assert "error: max_model_len (100000000) is larger than" in too_long.stderr
    unknown = run("serve", ABACUS, "--quantization", "bogus", "--port", 0, program="vllm")
    assert unknown.returncode == 1 and "error: --quantization: expected one of awq, " in unknown.stderr
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = run("serve", ABACUS, "--host", "127.0.0.1", "--port", busy.getsockname()[1], program="vllm")
    assert taken.returncode == 1
    assert "already in use" in taken.stderr.splitlines()[-1]


def test_words_without_a_server():
    assert run(program="vllm").returncode == 0
    assert "bench throughput" in run("bench", program="vllm").stdout
    version = run("--version", program="vllm")
    assert version.returncode == 0 and version.stdout.count("\n") == 1 and version.stdout[0].isdigit()
    environment = run("collect-env", program="vllm", env={"HF_TOKEN": "hf_secret"})
    assert environment.returncode == 0
    for heading in ("System Info", "CPU Info", "vLLM Info", "Environment Variables"):
        assert heading in environment.stdout
    assert "hf_secret" not in environment.stdout
    refused = run("disaggregated", "-c", "x.yaml", program="trtllm-serve")
    assert refused.returncode == 2 and "several servers" in refused.stderr


def test_a_hint_for_a_misspelt_flag():
    result = run("serve", ABACUS, "--max-modle-len", 5, program="vllm")
    assert result.returncode == 2
    assert "unrecognized arguments: --max-modle-len, did you mean --max-model-len" in result.stderr
    result = run(ABACUS, "--max_batch_sizes", 5, program="trtllm-serve")
    assert result.returncode == 2 and "unrecognized arguments: --max_batch_sizes, did you mean --max-batch-size" in result.stderr


def test_devices():
    refused = run("serve", ABACUS, "--device", "cuda", "--port", 0)
    assert refused.returncode == 3 and "make build-cuda" in refused.stderr
    with serving(ABACUS, env={"VLLM_XPU_FUSED": "0", "HIP_VISIBLE_DEVICES": "0"}) as server:
        assert "device: cpu" in server.log()
        assert "VLLM_XPU_FUSED: the supported devices are CPUs, and GPUs with CUDA or HIP" in server.log()
        assert "HIP_VISIBLE_DEVICES" not in server.log()


def test_options_of_the_newest_release(tmp_path):
    """Options of vLLM 0.33 that 0.32 did not have, and Mistral's own launch command for a folder with Hugging Face files."""
    flags = ["--monokernel", "--watchdog-config", '{"timeout": 60, "dump_dir": "/tmp/dumps"}', "--sleep-mode-backend", "cumem", "--enable-sleep-mode",
             "--reasoning-effort-map", '{"medium": "low"}', "--tokenizer-mode", "mistral", "--config-format", "mistral", "--load-format", "mistral",
             "--cpu-offload-gb", "4", "--kv-offloading-size", "0"]
    with serving(ABACUS, *flags, program="vllm", env={"VLLM_SERVER_DEV_MODE": "1", "VLLM_GC_DEBUG": "1"}) as server:
        assert server.complete("Anna", max_tokens=2)["finish_reason"] == "length"
        warnings = "\n".join(line for line in server.log().splitlines() if "WARNING" in line)
        for option in ("--monokernel", "--watchdog-config", "--cpu-offload-gb 4", "--tokenizer-mode mistral"):
            assert option in warnings, warnings
        assert "--kv-offloading-size" not in warnings and "--sleep-mode-backend" not in warnings and "VLLM_GC_DEBUG is not" not in warnings
        assert server.post("/sleep", None) == (200, {"status": "sleeping", "level": 1})
        assert json.loads(server.get("/is_sleeping")[1]) == {"is_sleeping": True}
    folder = tmp_path / "only-mistrals"
    folder.mkdir()
    (folder / "params.json").write_text("{}")
    missing = run("serve", folder, "--config-format", "mistral", "--port", 0, program="vllm")
    assert missing.returncode == 1 and "params.json: dim is missing" in missing.stderr
    wrong = run("serve", ABACUS, "--reasoning-effort-map", '{"huge": "low"}', "--port", 0, program="vllm")
    assert wrong.returncode == 1 and "--reasoning-effort-map: expected efforts of none, " in wrong.stderr


@contextlib.contextmanager
def trtllm_of(place, model, *words):
    with launched("trtllm-serve %s --host 127.0.0.1 --port 0 %s" % (model, " ".join(words)), place) as (_, port):
        def ask(model):
            body = json.dumps({"model": model, "prompt": "Anna", "max_tokens": 1}).encode()
            request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)["model"]

        with urllib.request.urlopen("http://127.0.0.1:%d/v1/models" % port, timeout=PATIENCE_S) as answer:
            yield [card["id"] for card in json.load(answer)["data"]], ask


def test_trtllm_names_a_folder_by_its_last_name_and_takes_any(tmp_path):
    folder = tmp_path / "tiny-model"
    shutil.copytree(ABACUS, folder)
    for written in (folder, str(folder) + "/"):
        with trtllm_of(tmp_path, written) as (names, ask):
            assert names == ["tiny-model"]
            for model in ("tiny-model", str(folder), "whatever", "gpt-4"):
                assert ask(model) == "tiny-model"
    with trtllm_of(tmp_path, folder, "--served_model_name", "mine") as (names, ask):
        assert names == ["mine"] and ask("other") == "mine"


def test_what_cannot_be_had_is_refused():
    for words, own_code in ((["--headless"], 2), (["--middleware", "x.y"], 3), (["--nnodes", "2"], 2), (["--distributed-executor-backend", "ray"], 2)):
        for program, code in (("sluice", own_code), ("vllm", 1)):
            result = run("serve", ABACUS, *words, program=program)
            assert result.returncode == code, result.stderr
            assert words[0] in result.stderr


def test_explain_options():
    rows = json.loads(run("explain-options", "--json").stdout)
    by_name = {row["what"].split()[0]: row for row in rows if row["kind"] == "option"}
    assert by_name["--port"]["effect"] == "acts"
    assert by_name["--trust-remote-code"]["effect"] == "no effect"
    assert by_name["--nnodes"]["effect"] == "acts"
    assert by_name["--enable-lora"]["effect"] == "acts"
    assert by_name["--middleware"]["effect"] == "refused"
    for option in json.loads((DATA / "options" / "vllm_serve.json").read_text()):
        assert option["names"][0] in by_name, option
    assert "NCCL_*" in run("explain-options", "NCCL").stdout


def test_run_batch(tmp_path):
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions",
              "body": {"model": "m", "prompt": "Tom has %d" % i, "max_tokens": 8, "temperature": 0}} for i in range(12)]
    lines.insert(3, {"custom_id": "bad", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "x", "n": -1}})
    lines.append({"custom_id": "odd", "method": "POST", "url": "/v1/nothing", "body": {}})
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run("run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", ABACUS, "--served-model-name", "m",
                 "--max-model-len", 256, program="vllm")
    assert result.returncode == 0, result.stderr
    assert "14 requests answered, 2 of them with an error" in result.stderr
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [a["custom_id"] for a in answers] == [line["custom_id"] for line in lines]
    with serving(ABACUS, "--max-model-len", 256) as server:
        for line, answer in zip(lines, answers):
            if line["custom_id"] in ("bad", "odd"):
                assert answer["response"]["status_code"] == 400 and answer["response"]["body"] is None
                assert answer["error"]["error"]["message"]
            else:
                assert answer["error"] is None
                assert answer["response"]["body"]["choices"][0]["text"] == server.complete(line["body"]["prompt"], max_tokens=8)["text"]
    missing = run("run-batch", "-o", tmp_path / "out.jsonl", "--model", ABACUS)
    assert missing.returncode == 2 and "--input-file" in missing.stderr


def test_the_older_module_of_vllm(tmp_path):
    script = "exec %s -m vllm.entrypoints.openai.api_server --model %s --port 0" % (sys.executable, ABACUS)
    environment = "export PYTHONPATH=%s\n" % (pathlib.Path(BIN).parent / "python")
    with launched(environment + script, tmp_path) as (log, _):
        assert "non-default args" in log.read_text()


def test_help_lists_groups():
    text = run("serve", "--help=listgroup", program="vllm").stdout
    assert '--help="Scheduling"' in text
    assert "--max-num-seqs" in run("serve", "--help=max-num-seqs", program="vllm").stdout
