"""/metrics against the families that vLLM has, and what the recipes look for in it."""
import json
import re

from serving import DATA, wait_until

# Arithmetic about GPUs that vLLM shows with --enable-mfu-metrics; nothing here computes on one.
ABSENT = {"vllm:estimated_flops_per_gpu_total", "vllm:estimated_read_bytes_per_gpu_total", "vllm:estimated_write_bytes_per_gpu_total"}
OLD_NAMES = {"vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total",
             "vllm:time_per_output_token_seconds", "vllm:num_requests_swapped"}


def families(text):
    """name -> (type, labels of its samples)."""
    kinds, labels = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif not line.startswith("#"):
            sample = re.match(r"([a-zA-Z_:0-9]+)(?:\{(.*)\})? ", line)
            name = sample.group(1)
            base = name if name in kinds else re.sub("_(bucket|count|sum)$", "", name)
            assert base in kinds, line
            labels.setdefault(base, set()).update(re.findall(r'([a-zA-Z_]+)="', sample.group(2) or ""))
    return {name: (kind, labels.get(name, set())) for name, kind in kinds.items()}


def test_families_are_those_of_vllm(abacus):
    abacus.complete("Anna")
    recorded = json.loads((DATA / "vllm_answers" / "metrics.json").read_text())
    found = families(abacus.get("/metrics")[1].decode())
    for name, want in recorded.items():
        if name in ABSENT:
            continue
        assert name in found, name
        kind, labels = found[name]
        assert kind == want["type"], name
        assert labels >= set(want["labels"]), name
    assert OLD_NAMES <= found.keys()


def test_requests_count(abacus):
    """An answer is counted before it is sent, so that who has it finds it there."""
    wait_until(lambda: not abacus.metric("vllm:num_requests_running"), "requests of earlier tests still run")
    before = {name: abacus.metric(name) for name in ("vllm:request_success_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_total")}
    abacus.complete("Anna has 3 apples", max_tokens=5, ignore_eos=True)
    assert abacus.metric("vllm:request_success_total") == before["vllm:request_success_total"] + 1
    assert abacus.metric("vllm:generation_tokens_total") == before["vllm:generation_tokens_total"] + 5
    assert abacus.metric("vllm:prompt_tokens_total") > before["vllm:prompt_tokens_total"]
    assert abacus.metric("vllm:num_requests_running") == 0
