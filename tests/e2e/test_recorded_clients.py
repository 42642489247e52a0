"""Recorded requests of thirteen clients get answers with the fields that those clients read."""
import json

from serving import DATA, events

REQUESTS = [json.loads(line) for line in (DATA / "clients" / "requests.jsonl").read_text().splitlines()]
# Requests that fail, after which the client continues; the error explains why there is no answer.
NOT_SERVED = {"/v1/embeddings": 400, "/server_info": 404, "/tokenizer_info": 404}


def check_answer(row, status, headers, text):
    body = row.get("body") or {}
    if row["path"] in NOT_SERVED:
        assert status == NOT_SERVED[row["path"]]
        answer = json.loads(text)
        assert row["path"] in (answer["detail"] if "detail" in answer else answer["error"]["message"])
        return
    if row["path"] == "/v1/responses":
        assert status == 200
        assert json.loads(text)["output"][0]["content"][0]["text"]
        return
    if body.get("tools"):
        assert status == 400 and b"--enable-auto-tool-choice" in text
        return
    assert status == 200, text
    if "/completions" not in row["path"]:
        return
    if not body.get("stream"):
        answer = json.loads(text)
        prompts = body.get("prompt")
        several = isinstance(prompts, list) and not isinstance(prompts[0], int)
        assert [c["index"] for c in answer["choices"]] == list(range(len(prompts) if several else 1))
        assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
        if body.get("echo") and several and not isinstance(prompts[0], str):
            # lm_eval slices these lists by the number of ids that it sent: the lists need one entry per id, and one
            # for the generated token.
            for prompt, choice in zip(prompts, answer["choices"]):
                logprobs = choice["logprobs"]
                assert len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]) == len(prompt) + body["max_tokens"]
                assert logprobs["token_logprobs"][0] is None
        return
    parts = events(text)
    assert parts[-1] == "[DONE]" and parts[0]["choices"]
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    last = parts[-2]
    assert (last["choices"] == [] and last["usage"]["completion_tokens"] > 0) if wants_usage else last["choices"][0]["finish_reason"]
    assert headers["content-type"].startswith("text/event-stream")


def test_all_recorded_requests(abacus):
    clients = set()
    for row in REQUESTS:
        body = row.get("body")
        if isinstance(body, dict) and "model" in body:
            body = {**body, "model": "m"}
        status, headers, text = abacus.request(row["method"], row["path"], body, headers=row["headers"])
        try:
            check_answer({**row, "body": body}, status, headers, text)
        except (AssertionError, KeyError, ValueError) as problem:
            raise AssertionError("%s: %s %s %s: %s" % (row["client"], row["method"], row["path"], text[:300], problem)) from problem
        clients.add(row["client"])
    assert len(clients) >= 20
