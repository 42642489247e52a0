"""/metrics, compared with vLLM's metric families and with the metrics that the recipes read."""
import http.client
import json
import re
import threading
from random import Random

from serving import ABACUS, DATA, serving, wait_until

# Estimates for GPUs that vLLM reports with --enable-mfu-metrics; this server does not have them.
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
    """An answer is counted before it is sent: a client that has the answer also finds it in /metrics."""
    wait_until(lambda: not abacus.metric("vllm:num_requests_running"), "requests of earlier tests still run")
    before = {name: abacus.metric(name) for name in ("vllm:request_success_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_total")}
    abacus.complete("Anna has 3 apples", max_tokens=5, ignore_eos=True)
    assert abacus.metric("vllm:request_success_total") == before["vllm:request_success_total"] + 1
    assert abacus.metric("vllm:generation_tokens_total") == before["vllm:generation_tokens_total"] + 5
    assert abacus.metric("vllm:prompt_tokens_total") > before["vllm:prompt_tokens_total"]
    assert abacus.metric("vllm:num_requests_running") == 0


# Every sequence increments each of these metrics, whether it finishes, fails or is aborted.
PER_SEQUENCE = ["vllm:request_success_total"] + ["vllm:%s_count" % name for name in (
    "request_prompt_tokens", "request_generation_tokens", "request_num_preemptions", "request_params_max_tokens",
    "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
    "request_prefill_time_seconds", "request_decode_time_seconds", "request_prefill_kv_computed_tokens", "time_to_first_token_seconds")]
PER_REQUEST = ["vllm:request_params_n_count", "vllm:request_max_num_generation_tokens_count"]
SUMS = ["vllm:request_prompt_tokens_sum", "vllm:prompt_tokens_total", "vllm:request_generation_tokens_sum", "vllm:generation_tokens_total"]


def by_reason(server):
    text = server.get("/metrics")[1].decode()
    return {reason: float(value) for reason, value in re.findall(r'^vllm:request_success_total\{.*finished_reason="(\w+)"\} (\S+)$', text, re.M)}


class Sent:
    """What the clients requested and received."""

    def __init__(self):
        self.lock = threading.Lock()
        self.reasons = {"stop": 0, "length": 0, "abort": 0, "error": 0, "repetition": 0}
        self.requests = self.prompt_tokens = self.output_tokens = 0

    def add(self, reasons, prompts, prompt_tokens, output_tokens):
        """`prompt_tokens`: sum over the request's sequences."""
        with self.lock:
            self.requests += prompts
            self.prompt_tokens += prompt_tokens
            self.output_tokens += output_tokens
            for reason in reasons:
                self.reasons[reason] += 1


def leave(server, body, lines):
    """Closes the connection after some lines of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    for _ in range(lines):
        answer.readline()
    answer.close()
    connection.close()


def one_request(server, random, sent):
    words = ["Anna", "has", "3", "apples", "beads", "wire"]
    prompts = [" ".join(random.choices(words, k=random.randint(1, 30))) for _ in range(random.choice([1, 1, 1, 3]))]
    n = random.choice([1, 1, 2, 8])
    body = {"model": "m", "prompt": prompts, "n": n, "max_tokens": random.randint(1, 40), "temperature": 0.9 if n > 1 else 0, "seed": 3}
    kind = random.choice(["whole", "stream", "chat", "leave", "refused"])
    if kind == "refused":
        assert server.post("/v1/completions", {**body, **random.choice([{"n": -1}, {"max_tokens": -2}, {"top_p": 7}, {"prompt": []}])})[0] == 400
        return
    if kind == "leave":
        count = len(server.post("/tokenize", {"prompt": prompts[0]})[1]["tokens"])
        leave(server, {**body, "prompt": prompts[0], "n": 1, "max_tokens": 2000, "ignore_eos": True}, 2 * random.randint(1, 20))
        return sent.add(["abort"], 1, count, 0)
    if kind == "chat":
        del body["prompt"]
        status, answer = server.post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompts[0]}]})
        assert status == 200, answer
        reasons, usage, prompts = [c["finish_reason"] for c in answer["choices"]], answer["usage"], prompts[:1]
    elif kind == "whole":
        status, answer = server.post("/v1/completions", body)
        assert status == 200, answer
        reasons, usage = [c["finish_reason"] for c in answer["choices"]], answer["usage"]
    else:
        text = server.request("POST", "/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})[2].decode()
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        reasons = [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]]
        usage = events[-1]["usage"]
    assert len(reasons) == len(prompts) * n
    sent.add(reasons, len(prompts), n * usage["prompt_tokens"], usage["completion_tokens"])


def test_counts_agree_with_what_was_sent():
    """Sends random concurrent requests, too many for the blocks: whole, streamed, with several prompts and answers, aborted, rejected."""
    with serving(ABACUS, "--max-model-len", 2100, "--num-gpu-blocks-override", 140, "--max-num-seqs", 64, "--block-size", 16) as server:
        sent = Sent()

        def client(seed):
            random = Random(seed)
            for _ in range(12):
                one_request(server, random, sent)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        # This request alone needs more blocks than the cache has.
        status, answer = server.post("/v1/completions", {"prompt": "beads", "n": 8, "max_tokens": 400, "temperature": 0.9, "ignore_eos": True})
        assert status == 200, answer
        sent.add(["length"] * 8, 1, 8 * answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
        for thread in threads:
            thread.join()
        sequences = sum(sent.reasons.values())
        assert sent.reasons["abort"] > 5 and sequences > 80
        wait_until(lambda: server.metric("vllm:request_success_total") == sequences, lambda: (by_reason(server), sent.reasons), 30)
        assert by_reason(server) == sent.reasons
        assert {name: server.metric(name) for name in PER_SEQUENCE} == {name: sequences for name in PER_SEQUENCE}
        assert {name: server.metric(name) for name in PER_REQUEST} == {name: sent.requests for name in PER_REQUEST}
        sums = {name: server.metric(name) for name in SUMS}
        assert sums["vllm:request_prompt_tokens_sum"] == sums["vllm:prompt_tokens_total"] == sent.prompt_tokens
        assert sums["vllm:request_generation_tokens_sum"] == sums["vllm:generation_tokens_total"] >= sent.output_tokens
        assert server.metric("vllm:num_preemptions_total") > 0
        assert server.metric("vllm:num_requests_running") == server.metric("vllm:num_requests_waiting") == 0


def test_counts_agree_for_a_model_that_pools():
    random = Random(5)
    with serving(DATA / "checkpoints" / "tiny-bert") as server:
        texts = tokens = 0
        for _ in range(10):
            inputs = [" ".join(["beads"] * random.randint(1, 20)) for _ in range(random.randint(1, 5))]
            status, answer = server.post("/v1/embeddings", {"model": "m", "input": inputs})
            assert status == 200, answer
            assert server.post("/v1/embeddings", {"model": "m", "input": 5})[0] == 400
            texts, tokens = texts + len(inputs), tokens + answer["usage"]["prompt_tokens"]
        assert by_reason(server) == {"stop": texts, "length": 0, "abort": 0, "error": 0, "repetition": 0}
        assert {name: server.metric(name) for name in PER_SEQUENCE} == {name: texts for name in PER_SEQUENCE}
        assert server.metric("vllm:request_prompt_tokens_sum") == server.metric("vllm:prompt_tokens_total") == tokens
        assert server.metric("vllm:request_generation_tokens_sum") == server.metric("vllm:generation_tokens_total") == 0
