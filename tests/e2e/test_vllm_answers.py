"""Recorded requests get the same answers as vLLM gave: status, structure, errors, and in float32 the same text and logprobs."""
import json

import pytest

from serving import DATA, events, serving

CHECKPOINT = DATA / "checkpoints" / "llama-bf16"
COMMON = ("--max-model-len", 512, "--dtype", "float32", "--threads", 2)
SERVERS = {
    "base": COMMON,
    "keys": (*COMMON, "--api-key", "sk-bead-0001", "sk-bead-0002", "--enable-tokenizer-info-endpoint", "--enable-request-id-headers"),
}
# vLLM has these routes only for pooling models; sluice's errors for other models name the alternative
# (test_pooling.py).
POOLING = {"/v1/embeddings", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"}
# Fields that may be null or have a value.
EITHER = {"stop_reason", "finish_reason", "logprobs"}
# Fields of a model's card that clients of other servers read.
OF_A_CARD = {"type", "display_name", "created_at", "capabilities"}
# Deliberate differences from vLLM (docs/compatibility.md). The error names the prompt's length, not a max_tokens of 0.
# Routes with GET also answer HEAD. An id outside the vocabulary has no text. The error names an unreadable image.
JUDGED = {"chat.messages.content_image", "cmpl.prompt.ids512.max1", "route.HEAD.health", "route.HEAD.v1_models", "route.HEAD.version",
          "route.POST.detokenize.oov", "greedy.ids2", "greedy.ids300"}
ROWS = [row for row in map(json.loads, (DATA / "vllm_answers" / "recorded.jsonl").read_text().splitlines()) if row["id"] not in JUDGED]


def kind(value):
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def differences(want, got, place="answer"):
    """Differences in structure: keys and types of values. Objects keyed by tokens are compared by texts() and numbers()."""
    if isinstance(want, dict) and isinstance(got, dict):
        if place.endswith(("top_logprobs[]", "prompt_logprobs[]", "logit_bias")):
            return
        for key in want.keys() - got.keys():
            yield "%s.%s is missing" % (place, key)
        for key in got.keys() - want.keys() - (OF_A_CARD if want.get("object") == "model" else set()):
            yield "%s.%s is too much" % (place, key)
        for key in want.keys() & got.keys():
            yield from differences(want[key], got[key], place + "." + key)
    elif isinstance(want, list) and isinstance(got, list):
        if place.endswith((".choices", ".data", ".token_logprobs", ".tokens")) and len(want) != len(got):
            yield "%s has %d elements, not %d" % (place, len(got), len(want))
        for a, b in zip(want, got):
            yield from differences(a, b, place + "[]")
    elif kind(want) != kind(got) and not (None in (want, got) and place.rsplit(".", 1)[-1] in EITHER):
        yield "%s is %s, not %s" % (place, kind(got), kind(want))


def texts(parts):
    """The whole text of every choice in a body, or in the events of a stream."""
    result = {}
    for part in parts:
        for choice in part.get("choices") or []:
            piece = choice.get("text")
            if piece is None:
                piece = (choice.get("message") or choice.get("delta") or {}).get("content")
            result[choice["index"]] = result.get(choice["index"], "") + (piece or "")
    return result


def numbers(parts):
    """The logprobs of all choices, concatenated."""
    result = []
    for part in parts:
        for choice in part.get("choices") or []:
            logprobs = choice.get("logprobs") or {}
            result += [x for x in logprobs.get("token_logprobs") or [] if x is not None]
            result += [x["logprob"] for x in logprobs.get("content") or []]
    return result


def compare(row, status, text):
    """Describes what is wrong with an answer; '' if the answer is correct."""
    if status != row["status"]:
        return "status %d, not %d: %s" % (status, row["status"], text[:200])
    if "events" in row:
        got = events(text)
        if (row["events"][-1] == "[DONE]") != (got[-1] == "[DONE]"):
            return "the end of the stream"
        want, got = ([e for e in all if e != "[DONE]"] for all in (row["events"], got))
        for a, b in ((want[0], got[0]), (want[-1], got[-1])):
            for difference in differences(a, b, "event"):
                return difference
    elif "response" in row:
        want, got = [row["response"]], [json.loads(text)]
        error = want[0].get("error") if isinstance(want[0], dict) else None
        if isinstance(error, dict):
            for key in ("type", "code", "param"):
                if got[0]["error"].get(key) != error.get(key):
                    return "%s of the error is %r, not %r" % (key, got[0]["error"].get(key), error.get(key))
            return "" if got[0]["error"]["message"] else "an error without a message"
        for difference in differences(want[0], got[0]):
            return difference
    else:
        return ""
    body = row.get("body")
    if not isinstance(body, dict) or body.get("temperature") != 0 or not isinstance(want[0], dict):
        return ""
    if texts(want) != texts(got):
        return "text %r, not %r" % (texts(got), texts(want))
    wanted, found = numbers(want), numbers(got)
    if len(wanted) != len(found) or any(abs(a - b) > 1e-3 for a, b in zip(wanted, found)):
        return "logprobs %s, not %s" % (found[:8], wanted[:8])
    return ""


@pytest.mark.parametrize("name", SERVERS)
def test_recorded_requests(name):
    rows = [row for row in ROWS if row["server"] == name and row["path"] not in POOLING]
    assert len(rows) > 60
    wrong = []
    with serving(CHECKPOINT, "other-name", *SERVERS[name], program="vllm", name="abacus") as server:
        for row in rows:
            body = row.get("raw_body")
            if "body" in row:
                body = json.dumps(row["body"], ensure_ascii=False).encode("utf-8", "surrogatepass")
            headers = {} if body is None else {"Content-Type": "application/json"}
            for key, value in (row.get("headers") or {}).items():
                headers = {k: v for k, v in headers.items() if k.lower() != key.lower()}
                if value is not None:
                    headers[key] = value
            status, _, text = server.request(row["method"], row["path"], body, only_headers=headers)
            problem = compare(row, status, text)
            if problem:
                wrong.append("%s: %s" % (row["id"], problem))
    assert not wrong, "%d of %d:\n%s" % (len(wrong), len(rows), "\n".join(wrong[:20]))


def test_the_comparison_sees_differences():
    row = {"status": 200, "body": {"temperature": 0}, "response": {"choices": [{"index": 0, "text": "ab", "logprobs": None}]}}
    good = {"choices": [{"index": 0, "text": "ab", "logprobs": None}]}
    say = lambda answer, status=200: compare(row, status, json.dumps(answer).encode())
    assert say(good) == ""
    assert "status" in say(good, 400)
    assert "text" in say({"choices": [{"index": 0, "text": "ac", "logprobs": None}]})
    assert "missing" in say({"choices": [{"index": 0, "logprobs": None}]})
    assert "too much" in say({"choices": [{"index": 0, "text": "ab", "logprobs": None, "extra": 1}]})
    assert "elements" in say({"choices": []})
    refused = {"status": 400, "response": {"error": {"type": "a", "code": 400, "param": "p"}}}
    assert "param" in compare(refused, 400, b'{"error":{"type":"a","code":400,"param":null,"message":"m"}}')
