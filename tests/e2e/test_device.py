"""A server whose model is on a device: by default the emulator of the GPU kernels, or the device that SLUICE_TESTED_DEVICE selects."""
import math

import pytest

from serving import ABACUS, BIN, TESTED_DEVICE, at_once, run, serving

FLAGS = ["--max-model-len", 512, "--max-num-seqs", 8, "--max-num-batched-tokens", 64, "--block-size", 16]
# Sums, for which the model predicts each token with certainty, so that rounding changes none.
PROMPTS = ["<|start_header_id|>user<|end_header_id|>\n\n%s<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n" % question for question in (
    "Tom has 13 apples. He buys 24 more and then gives 8 to Anna. How many apples does he have left?",
    "Mia has 56 marbles. She loses 13 and then finds 22. How many marbles does she have now?",
    "Noah has 12 pens. He buys 17 more and then gives 5 to Grace. How many pens does he have left?")]
# CPU and device both compute in bfloat16 but round at different places.
LOGPROB_TOLERANCE = 0.06


def ask(server, prompt, **fields):
    choice = server.complete(prompt, max_tokens=20, logprobs=3, ignore_eos=True, **fields)
    return choice["text"], tuple(choice["logprobs"]["token_logprobs"])


@pytest.fixture(scope="module")
def device():
    with serving(ABACUS, "--device", TESTED_DEVICE, *FLAGS) as server:
        yield server


@pytest.fixture(scope="module")
def alone(device):
    return [ask(device, prompt) for prompt in PROMPTS]


def test_the_answers_are_the_cpus(alone):
    with serving(ABACUS, "--device", "cpu", *FLAGS) as cpu:
        for prompt, (text, logprobs) in zip(PROMPTS, alone):
            expected_text, expected = ask(cpu, prompt)
            assert text == expected_text
            assert all(math.isclose(a, b, abs_tol=LOGPROB_TOLERANCE) for a, b in zip(logprobs, expected))


def test_a_crowd_changes_nothing(device, alone):
    jobs = [lambda p=p: ask(device, p) for p in PROMPTS]
    assert at_once(jobs * 2) == alone * 2
    assert device.metric("vllm:prefix_cache_hits_total") > 0


@pytest.mark.slow
def test_tokens_drawn_on_the_device_are_those_that_the_sampler_draws(device):
    """The host samples rows with logprobs; without them the device samples."""
    for prompt in PROMPTS:
        fields = {"temperature": 0.8, "top_p": 0.9, "seed": 11}
        drawn = device.complete(prompt, max_tokens=20, ignore_eos=True, **fields)["text"]
        assert drawn == ask(device, prompt, **fields)[0]


def test_the_memory_plan_is_the_devices(device):
    assert ("of 8192.0 MiB on Fake MI355X 0" if TESTED_DEVICE == "hip" else "of 4096.0 MiB on emulated") in device.log()


@pytest.mark.parametrize("ranks", [["-tp", 3], ["-tp", 2, "--disable-custom-all-reduce"], ["-tp", 2, "-pp", 2]])
def test_several_devices_answer_as_one(alone, device, ranks):
    """Several devices return the same tokens, logprobs and sampled tokens as one device."""
    with serving(ABACUS, "--device", TESTED_DEVICE, *FLAGS, *ranks) as several:
        assert at_once([lambda p=p: ask(several, p) for p in PROMPTS]) == alone
        fields = {"temperature": 0.8, "top_p": 0.9, "seed": 11, "max_tokens": 10, "ignore_eos": True}
        assert several.complete(PROMPTS[0], **fields)["text"] == device.complete(PROMPTS[0], **fields)["text"]
        log = several.log()
        assert "devices (%s); the memory above is what each of them holds at most" % ("Fake MI355X 0" if TESTED_DEVICE == "hip" else "emulated") in log
        assert several.get("/health")[0] == 200


@pytest.mark.parametrize("flags, param", [(["--dtype", "float32"], "dtype"), (["--gpu-memory-utilization", 0.001], "memory")])
def test_what_a_device_cannot_do_is_refused_at_start(flags, param):
    result = run("serve", ABACUS, "--device", TESTED_DEVICE, "--port", 0, *flags)
    assert result.returncode not in (0, None) and param in result.stderr


def test_without_a_gpu_cuda_is_refused_and_never_replaced_by_the_cpu():
    result = run("complete", ABACUS, "--device", "cuda", "--prompt", "x")
    if result.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert result.returncode == 3 and result.stdout == ""
    assert "CUDA" in result.stderr or "driver" in result.stderr or "GPU" in result.stderr


GRAPHS = {
    "vllm": ["--compilation-config", '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,3]}'],
    "sluice": ["--cudagraph-capture-sizes", 1, 3, "--async-scheduling"]}


@pytest.mark.slow
@pytest.mark.parametrize("program", GRAPHS)
def test_steps_that_are_replayed_answer_as_those_that_are_launched(device, alone, program):
    """Sends a single request, and then up to three at a time, so that some steps are padded."""
    with serving(ABACUS, "--device", TESTED_DEVICE, *FLAGS, *GRAPHS[program], program=program) as server:
        assert "1, 3 sequences or, padded, fewer" in server.log()
        assert [ask(server, prompt) for prompt in PROMPTS] == alone
        assert server.metric("sluice:replayed_steps_total") >= 3 * 19  # the first of 20 tokens comes with the prompt's step
        assert at_once([lambda p=p: ask(server, p) for p in PROMPTS]) == alone
        fields = {"temperature": 0.8, "top_p": 0.9, "seed": 11, "max_tokens": 10, "ignore_eos": True}
        assert server.complete(PROMPTS[0], **fields)["text"] == device.complete(PROMPTS[0], **fields)["text"]
    assert device.metric("sluice:replayed_steps_total") == 0


def test_several_devices_replay_steps_with_their_exchanges(alone):
    """HIP devices exchange by RCCL, which graphs cannot contain: their steps are launched."""
    replays = TESTED_DEVICE != "hip"
    with serving(ABACUS, "--device", TESTED_DEVICE, *FLAGS, "-tp", 2, "--cudagraph-capture-sizes", 1, 3) as server:
        assert ("1, 3 sequences or, padded, fewer" if replays else "exchanges over NCCL are not captured") in server.log()
        assert at_once([lambda p=p: ask(server, p) for p in PROMPTS]) == alone
        replayed = server.metric("sluice:replayed_steps_total")
        assert replayed >= 19 if replays else replayed == 0


def test_enforced_eager_steps_are_not_replayed(alone):
    with serving(ABACUS, "--device", TESTED_DEVICE, *FLAGS, *GRAPHS["vllm"], "--enforce-eager", program="vllm") as server:
        assert ask(server, PROMPTS[0]) == alone[0]
        assert server.metric("sluice:replayed_steps_total") == 0


def test_the_energy_of_gpus_is_counted(tmp_path):
    """A library with NVML's functions counts the energy of the emulated device. Servers on the CPU do not open it."""
    nvml = BIN.parent / "src" / "device" / "libfake_nvml.so"
    if not nvml.exists():
        pytest.skip("the tests' libraries are not built")
    env = {"SLUICE_NVML": str(nvml), "SLUICE_FAKE_NVML": str(tmp_path)}

    def energy(server):
        return [line for line in server.get("/metrics")[1].decode().splitlines() if line.startswith(("sluice:energy_joules_total{domain=\"gpu", "sluice:gpu_memory"))]

    counters = tmp_path / "emulated-0"  # millijoules, bytes in use, bytes
    counters.write_text("1000 5 10")
    with serving(ABACUS, "--device", TESTED_DEVICE, *FLAGS, env=env) as server:
        counters.write_text("9000 6 10")
        server.complete("7", max_tokens=4, ignore_eos=True)
        labels = '{gpu="0",uuid="emulated-0"}'
        assert energy(server) == ['sluice:energy_joules_total{domain="gpu-0"} 8.0', "sluice:gpu_memory_used_bytes%s 6.0" % labels, "sluice:gpu_memory_total_bytes%s 10.0" % labels]
        assert server.metric("sluice:energy_joules_per_token") >= 2
    with serving(ABACUS, env=env) as server:
        assert not energy(server)
