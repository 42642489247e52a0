#!/usr/bin/env python3
"""Runs the fuzz targets of build/fuzz (make fuzz builds them). Each starts from the test data and from the inputs that earlier runs found.

Usage: tools/fuzz.py [--seconds N] [--jobs N] [TARGET ...]
Prints a line per target. Exits with 1 if a target crashed, hung, or allocated too much memory; the input that caused it is in
build/fuzz/found.
"""
import argparse
import base64
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/fuzz"
DATA = ROOT / "tests/data"
SYMBOLIZER = "/usr/lib/llvm-16/bin/llvm-symbolizer"
INPUT_TIMEOUT_S = 20
MEMORY_MIB = 3000


def files(pattern):
    return [path.read_bytes() for path in sorted(DATA.glob(pattern))]


def json_files():
    return files("**/*config.json") + files("schemes/*.json")


def tokenizers():
    return [text + b"\0 the 12 texts \xc3\xa9\n" for text in files("checkpoints/*/tokenizer.json")]


def safetensors():
    """Complete small files; real ones are too large."""
    def file(tensors, metadata=None):
        header, offset = {"__metadata__": metadata} if metadata else {}, 0
        for name, dtype, shape, size in tensors:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + bytes(offset)
    return [file([]), file([("a", "F32", [2, 3], 24), ("b", "BF16", [], 2)], {"format": "pt"}),
            file([("w", "F8_E4M3", [4, 4], 16), ("w_scale", "F32", [1], 4), ("p", "U8", [4, 2], 8), ("e", "I8", [0, 3], 0)])
            ] + files("checkpoints/*/*.index.json")


def torch_files():
    """Tensor files as torch.save writes them."""
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    import torch_files as files
    return [base64.b64decode(file) for file in (files.saved([[1.0, 2.0, 3.0]]), files.saved(bytes(12), "HalfStorage", [2, 3]),
                                                files.saved(bytes(12), "BFloat16Storage", [1, 2, 3]))]


def hub_answers():
    sha = "0123456789abcdef0123456789abcdef01234567"
    info = {"id": "a/b", "sha": sha, "siblings": [{"rfilename": name} for name in ("config.json", "model-00001-of-00002.safetensors", "../x")]}
    return [json.dumps(answer).encode() for answer in (info, [{"id": "a/b"}], {"weight_map": {"a": "model.safetensors"}})] + [
        b"https://huggingface.co/a/b/tree/refs%2Fpr%2F1?x#y", b'"%s"12' % sha.encode()]


def recordings():
    """A recording that is only a header, and events without a header."""
    header = b'{"run":"1","segment":0,"options":[]}'
    crc = 0xffffffff
    for byte in header:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    file = b"SLUICEFLIGHT" + struct.pack("<III", 1, len(header), crc ^ 0xffffffff) + header
    events = [bytes([kind]) + struct.pack("<I", len(fields)) + fields for kind, fields in
              ((1, b"\x02\x02{}"), (3, b"\x07"), (7, b""), (8, b"\x02\x00\x00\x00\x01\x07\x00\x00\x06\x00\x01\x00\x06\x00"),
               (9, b"\x01\x07\x00\x06\x00"))]
    return [file, b"".join(events)]


def receipts():
    sampling = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1,
                "seed": "5", "max_tokens": 4, "min_tokens": 0, "ignore_eos": False, "logit_bias": [[3, 1.5]], "bad_words": [[1]]}
    return [json.dumps({"version": 1, "id": "a", "model": "m", "created": 1, "program": "p", "weights": "w", "profile": {}, "end_tokens": [2],
                        "n": 1, "prompts": [{"num_tokens": 1, "sha256": "", "token_ids": [1], "sampling": sampling}],
                        "choices": [{"prompt": 0, "sequence": 0, "finish_reason": "stop", "num_tokens": 1, "sha256": "", "token_ids": [2]}],
                        "public_key": "ed25519:" + 64 * "0", "signature": base64.b64encode(bytes(64)).decode()}).encode()]


def answers():
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [5], "logprobs": {"content": [{"token": "a", "logprob": -0.5}]},
                          "finish_reason": "stop", "stop_reason": None}], "prompt_token_ids": [1], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    body = {"prompt": ["a", [1, 2]], "n": 2, "temperature": 0.5, "top_k": 3, "stop": ["b"], "messages": [{"role": "user", "content": "a"}]}
    return [json.dumps(body).encode(), json.dumps({"choices": [{"text": "a", "logprobs": {"token_logprobs": [-1.5]}}]}).encode(),
            b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode()]


def client_requests():
    return [json.loads(line) for line in (DATA / "clients/requests.jsonl").read_text().splitlines()]


def bodies():
    messages = [json.loads(line) for line in (DATA / "agents/messages.jsonl").read_text().splitlines()]
    responses = [{"body": {"model": "m", "input": [{"role": "user", "content": "a"}, {"type": "function_call", "call_id": "c", "namespace": "n", "name": "f",
                           "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "1"}, {"type": "web_search_call"}],
                           "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f", "parameters": {}}]}],
                           "text": {"format": {"type": "json_schema", "name": "s", "schema": {}}}, "reasoning": {"effort": "low"}}}]
    chats = [{"body": {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f"}}],
                       "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
                           {"type": "function", "function": {"name": "f"}}]}}}}]
    texts = [request["body"] for request in client_requests() + messages + responses + chats if request.get("body")]
    return [(text if isinstance(text, str) else json.dumps(text)).encode() for text in texts]


def http_requests():
    posts = [b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
             for body in bodies()]
    return posts + [
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
        b"OPTIONS /v1/%7E?x=1 HTTP/1.0\r\nOrigin: b\r\nConnection: keep-alive\r\n\r\n"]


def request_heads():
    return http_requests() + [b"GET / HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                              b"host:a%41:8\ntransfer-encoding: Chunked\ntransfer-encoding:\ncontent-length:1\n"]


def http_answers():
    return [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"11\r\ndata: {\"a\":1}\r\n\r\n\r\n5;x=1\r\n: c\r\n\r\n0\r\nT: a\r\n\r\n",
        b"HTTP/1.1 404 No\r\nContent-Length: 10\r\nConnection: close\r\n\r\ndata: ab\n\n",
        b"HTTP/1.0 200 OK\r\n\r\nid: 3\rdata: x\rdata: y\r\r",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]


def stream_chunks():
    return [
        rb'{"id":"c","choices":[{"index":0,"text":" \u00e9\ud83d\ude00\n","logprobs":null,"finish_reason":null}],"usage":null}',
        b'{"id":"c","choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}',
        b'{"error":{"message":"m","type":"t","code":400}}']


def datasets():
    return [b'{"prompt":"a b","output_tokens":3}\n{"prompt":"c"}\n\n',
            b'[{"conversations":[{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}]']


def yaml_files():
    return [b"max-num-seqs: 128\nkv_cache_dtype: fp8\nno-enable-prefix-caching: true\nserved-model-name: [a, b]\n"
            b"compilation-config: {mode: 3, pass_config: {enable_fusion: true}}\ncompilation-config.level: 3\n",
            b"cuda_graph_config:\n  enable_padding: true\n  max_batch_size: 720\nkv_cache_config:\n  dtype: fp8\nx: &a [1, 2]\ny: *a\n"]


def command_lines():
    return [b"models/x\n--tensor-parallel-size\n2\n--kv-cache-dtype=fp8\n--no-enable-prefix-caching\n-O3\n--served-model-name\na\nb\n--\nx",
            b"--compilation-config.pass_config.enable_fusion\ntrue\n--compilation-config\n{\"cudagraph_mode\":\"FULL\"}\n-O{\"mode\":3}\n"
            b"--max-num-batched-tokens\n8k\n--gpu_memory_utilization\n0.9"]


def tactic_files():
    tactic = {"algorithm": ["1"] + ["0"] * 7, "workspace_bytes": 4, "seconds": 0.5}
    owner = {"format": 2, "program": "0.1.0", "device": "NVIDIA H200", "compute_capability": 90, "library_version": 130000}
    way = {"way": "own kernels", "seconds": 0.5}
    return [json.dumps({**owner, "tactics": {"a": tactic, "b": way}}).encode()]


def model_texts():
    return [json.loads(line)["text"].encode() for line in (DATA / "parsers/cases.jsonl").read_text().splitlines()]


def json_schemas():
    rows = [json.loads(line) for name in ("suite", "random") for line in (DATA / f"json_schema/{name}.jsonl").read_text().splitlines()]
    return [json.dumps(row["schema"]).encode() for row in rows]


def grammars():
    return [b'root ::= "a" b* | [^"\\n] (b | "c"){2,5}\nb ::= "[" root? "]" | "\\u00e9"+  # x\n',
            b'root ::= s\ns ::= s s | [a-z] | [^a] | s s s | ""', b"root ::= (root){0,}", b'root[max_tokens=3] ::= a{1,}\na ::= b{2,} (="x")\nb ::= a{3}',
            b'root ::= TagDispatch(("<a>", b), loop_after_dispatch=true)\nb ::= [0-9]{1,200}']


def lark_grammars():
    return [b'start: start*', b'?start: sum\n?sum: product | sum "+" product -> add\n?product: NUMBER | "(" sum ")"\nNUMBER.2: /[0-9]+/i\n%ignore /[ ]+/\n',
            b'start: "a".."z" [b] c~2..5\nb: "x"i\nc[lazy]: %json {"type": "object"} | <tok> | /x{1,9}/\n', b'start: A\nA: B+\nB: A~2..9']


def structural_tags():
    schema = {"type": "json_schema", "json_schema": {"type": "object", "properties": {"a": {"$ref": "#"}}}}
    tag = {"type": "tag", "begin": "<a>", "content": schema, "end": "</a>"}
    formats = [{"type": "triggered_tags", "triggers": ["<"], "tags": [tag], "at_least_one": True, "stop_after_first": False},
               {"type": "sequence", "elements": [{"type": "const_string", "value": "x"}, {"type": "any_text", "excludes": ["b"]}, tag]},
               {"type": "or", "elements": [{"type": "regex", "pattern": "(a|b)*c{2,}"}, {"type": "grammar", "grammar": "root ::= root{0,}"}]},
               {"type": "tags_with_separator", "tags": [tag], "separator": ","}, {"type": "star", "content": {"type": "plus", "content": tag}},
               {"type": "repeat", "min": 2, "max": 90, "content": {"type": "optional", "content": schema}}]
    return [json.dumps({"type": "structural_tag", "format": content}).encode() for content in formats]


def regexes():
    return [rb"^[a-z]+(\d{2,5}|\w*)?[^x-z]$", rb"((a*)*b){0,99}|(?:c|d)+", rb"(?P<n>\.)\x41\u00e9[\]\-]{3}", b"(" * 60 + b"a" + b"*)" * 60]


def rank_facts():
    facts = [b"program", b"0.1.0 (abc)", b"model files", b"0123456789abcdef"]
    return [bytes([2]) + b"".join(bytes([len(text)]) + text for text in facts)]


def step_messages():
    """Two step messages, each preceded by its length: a sequence's prompt, then a token."""
    steps = [[3, 1, 1, 3, 0, 0, 0, 5, 1, 0, 6, 7, 8, 9, 2], [1, 1, 1, 1, 3, 0, 1, 1, 1, 9, 0]]
    return [b"".join(bytes([len(step), *step]) for step in steps)]


def images(kind):
    """The test images whose names end with `kind`."""
    rows = [json.loads(line) for line in (DATA / "vision/images.jsonl").read_text().splitlines()]
    return [base64.b64decode(row["base64"]) for row in rows if row["name"].endswith(kind)]


# The initial inputs of each target.
SEEDS = {
    "json_fuzz": json_files,
    "safetensors_fuzz": safetensors,
    "torch_file_fuzz": torch_files,
    "scheme_fuzz": json_files,
    "model_config_fuzz": json_files,
    "lora_config_fuzz": lambda: files("adapters/*/adapter_config.json"),
    "tekken_fuzz": lambda: files("checkpoints/*/tekken.json"),
    "tokenizer_fuzz": tokenizers,
    "template_fuzz": lambda: files("chat_templates/templates/*"),
    "request_fuzz": bodies,
    "request_parser_fuzz": http_requests,
    "request_framing_fuzz": request_heads,
    "response_fuzz": http_answers,
    "stream_chunk_fuzz": stream_chunks,
    "dataset_fuzz": datasets,
    "yaml_fuzz": yaml_files,
    "command_line_fuzz": command_lines,
    "recipe_fuzz": lambda: files("recipes/*"),
    "tactic_cache_fuzz": tactic_files,
    "parsers_fuzz": model_texts,
    "json_schema_fuzz": json_schemas,
    "ebnf_fuzz": grammars,
    "lark_fuzz": lark_grammars,
    "structural_tag_fuzz": structural_tags,
    "regex_fuzz": regexes,
    "model_info_fuzz": hub_answers,
    "handshake_fuzz": rank_facts,
    "step_message_fuzz": step_messages,
    "recording_fuzz": recordings,
    "receipt_fuzz": receipts,
    "answer_fuzz": answers,
    "png_fuzz": lambda: images(".png"),
    "jpeg_fuzz": lambda: images(".jpg"),
    "webp_fuzz": lambda: images(".webp"),
    "gif_fuzz": lambda: images(".gif"),
    "bmp_fuzz": lambda: images(".bmp"),
}


def words_of(seeds):
    """A dictionary of the words in the seeds, so that the fuzzer does not have to find them letter by letter."""
    words = {word for seed in seeds for word in re.findall(rb'"?[A-Za-z_][A-Za-z0-9_.-]{2,30}"?|\{%-?|-?%\}|\{\{|\}\}|&&|\\\n', seed)}
    escaped = ("".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else "\\x%02x" % b for b in word) for word in sorted(words)[:2000])
    return "".join('"%s"\n' % word for word in escaped)


def run(target, seconds):
    """Returns the line to print, and whether nothing was found."""
    program = BUILD / "bin" / target
    if not program.exists():
        return "%-20s is not built: run make fuzz" % target, False
    work = BUILD / "corpus" / target
    seeds = BUILD / "seeds" / target
    found = BUILD / "found"
    for folder in (work, found):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(seeds, ignore_errors=True)
    seeds.mkdir(parents=True)
    contents = SEEDS[target]()
    for number, content in enumerate(contents):
        (seeds / str(number)).write_bytes(content)
    dictionary = BUILD / "seeds" / (target + ".dict")
    dictionary.write_text(words_of(contents))
    command = [program, "-max_total_time=%d" % seconds, "-timeout=%d" % INPUT_TIMEOUT_S, "-rss_limit_mb=%d" % MEMORY_MIB, "-dict=%s" % dictionary,
               "-artifact_prefix=%s/%s-" % (found, target), "-print_final_stats=1", work, seeds]
    log = BUILD / "corpus" / (target + ".log")
    with open(log, "w") as out:
        code = subprocess.run([str(word) for word in command], cwd=work, stdout=out, stderr=subprocess.STDOUT,
                              env={**os.environ, "ASAN_SYMBOLIZER_PATH": SYMBOLIZER, "UBSAN_OPTIONS": "print_stacktrace=1"}).returncode
    text = log.read_text(errors="replace")
    runs = re.findall(r"number_of_executed_units: (\d+)", text)
    covered = re.findall(r"cov: (\d+)", text)
    line = "%-20s %9s inputs, %5s edges" % (target, runs[-1] if runs else "?", covered[-1] if covered else "?")
    if code != 0:
        line += ": exit status %d, see %s and %s" % (code, log.relative_to(ROOT), found.relative_to(ROOT))
    return line, code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets that run side by side")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all: " + ", ".join(SEEDS))
    arguments = parser.parse_args()
    for target in arguments.targets:
        if target not in SEEDS:
            parser.error("%s: no such target" % target)
    targets = arguments.targets or list(SEEDS)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        failed = 0
        for line, passed in pool.map(lambda target: run(target, arguments.seconds), targets):
            print(line, flush=True)
            failed += not passed
    print("%d targets, %d found something" % (len(targets), failed))
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
