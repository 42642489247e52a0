#!/usr/bin/env python3
"""Runs real client programs against a real server; the last line is `N passed, N failed`.

Usage: tests/clients/run_clients.py [anthropic | cohere | instructor | langchain | litellm | llama-index | llm | inspect | openai | pydantic-ai | aider]...

Each client has its own virtual environment, .venv-clients/NAME, made at its first run from
tests/requirements-clients/NAME.txt. That downloads hundreds of megabytes, so this is not part of `make test`. Answers to a sum, answers
about an image, and embeddings are compared with the results of plain HTTP. Answers with tools, schemas and streams are compared with the
scripts of a tiny model that returns only these scripts. SLUICE_BIN names a folder of programs other than build/release/bin.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]
import run as suites  # noqa: E402

if pathlib.Path(sys.prefix).resolve() != suites.VENV.resolve():
    # The end-to-end tests, whose helpers are used below, need packages of the tests' environment.
    suites.make_venv(suites.VENV, suites.VENVS[suites.VENV])
    python = suites.VENV / "bin" / "python"
    os.execv(python, [python, *sys.argv])
import test_images as eyes  # noqa: E402

from serving import ABACUS, DATA, serving  # noqa: E402

MODEL = "abacus"
UNKNOWN = "no-such-model"
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does he have now?"
ANSWER = "There are 3 + 4 = 7 apples.\n#### 7"
PROMPT = "Question: %s\nAnswer:" % QUESTION
# The scripted model's answers; the questions are in agent_case.py.
SCRIPTED = DATA / "agents" / "hermes"
TEXT = "Nothing needs a tool here; forty-two is the answer."
ANSWER_WITH_TOOL = "It is 7 degrees in Oslo, and the sum is 12.5."
CALL = ["get_weather", {"city": "Oslo"}]
VERDICT = {"verdict": "yes", "score": 0.75}
SAID = {"text": TEXT, "streamed text": TEXT, "call": CALL, "streamed call": CALL, "answer": ANSWER_WITH_TOOL,
        "streamed answer": ANSWER_WITH_TOOL, "schema": VERDICT, "streamed schema": VERDICT}
# Results that only some clients print.
SAID_MORE = {"openai": {"response, text": TEXT, "response, streamed text": TEXT, "response, call": CALL, "response, streamed call": CALL,
                        "response, last event": "response.completed", "response, answer": ANSWER_WITH_TOOL, "response, schema": VERDICT,
                        "response, fetched": True, "response, input items": ["one call"], "response, deleted": "NotFoundError"},
             "anthropic": {"stop reasons": ["end_turn", "end_turn", "tool_use", "tool_use"], "counted as it was read": True,
                           "stop sequence": "tool", "unknown model": "NotFoundError", "unknown model, streamed": "NotFoundError",
                           "wrong value": "BadRequestError"}}
TIMEOUT_S = 180


class Bench:
    """A server, a scratch folder, and the count of checks."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.client = ""
        self.passed = self.failed = 0
        self.url = server.url + "/v1"

    def solve(self):
        """Asks the questions over plain HTTP, for comparison."""
        chat = {"messages": [{"role": "user", "content": QUESTION}]}
        self.chat, self.chat_usage = self.ask("/v1/chat/completions", chat, lambda choice: choice["message"]["content"])
        self.text, self.text_usage = self.ask("/v1/completions", {"prompt": PROMPT}, lambda choice: choice["text"])

    def ask(self, path, body, text_of):
        """(text, [prompt tokens, completion tokens]) over plain HTTP."""
        status, answer = self.server.post(path, {"model": MODEL, "temperature": 0, "max_tokens": 60, **body})
        assert status == 200, answer
        return text_of(answer["choices"][0]), [answer["usage"][key] for key in ("prompt_tokens", "completion_tokens")]

    def check(self, what, holds, seen=None):
        self.passed += bool(holds)
        self.failed += not holds
        detail = "" if holds else "; seen: %s" % (seen,)
        print("%-6s %s: %s%s" % ("ok" if holds else "FAILED", self.client, what, detail), flush=True)

    def same(self, what, seen, expected):
        self.check(what, seen == expected, {"seen": seen, "expected": expected})

    def run(self, program, *words, code=0, **environment):
        """Runs a program of the client's virtual environment; returns (stdout, stderr)."""
        # Files that the program writes are deleted with the scratch folder; it finds no user
        # settings.
        settings = {"HOME": str(self.folder), "NO_PROXY": "127.0.0.1", "OPENAI_API_KEY": "EMPTY",
                    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1", **environment}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "XDG_", "INSPECT_", "AIDER_", "LLM_"))}
        result = subprocess.run([ROOT / ".venv-clients" / self.client / "bin" / program, *map(str, words)], cwd=self.folder,
                                env={**inherited, **settings}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=TIMEOUT_S)
        said = (result.stdout + result.stderr)[-3000:]
        assert result.returncode == code, "%s ended with %d: %s" % (program, result.returncode, said)
        return result.stdout, result.stderr


def library(bench):
    """Checks a client library: ask_NAME.py prints what it received."""
    out, _ = bench.run("python", HERE / ("ask_%s.py" % bench.client), bench.url, MODEL, QUESTION, PROMPT, UNKNOWN)
    got = json.loads(out.splitlines()[-1])
    bench.same("chat", got["chat"], bench.chat)
    bench.same("usage of a chat", got["usage"], bench.chat_usage)
    bench.same("streamed chat", "".join(got["pieces"]), bench.chat)
    bench.check("chat comes in pieces", len(got["pieces"]) > 5, got["pieces"])
    bench.same("usage of a streamed chat", got["streamed usage"], bench.chat_usage)
    bench.same("completion", got["completion"], bench.text)
    bench.same("usage of a completion", got["completion usage"], bench.text_usage)
    bench.same("streamed completion", "".join(got["completion pieces"]), bench.text)
    bench.check("completion comes in pieces", len(got["completion pieces"]) > 5, got["completion pieces"])
    for what in ("error", "streamed error"):
        error = got[what] or {"types": [], "message": "no error"}
        bench.check("unknown model, %s" % what, "NotFoundError" in error["types"] and UNKNOWN in error["message"], error)


def llm(bench):
    rows = ((MODEL, MODEL, False), (MODEL + "-text", MODEL, True), (UNKNOWN, UNKNOWN, False))
    models = [{"model_id": row[0], "model_name": row[1], "completion": row[2], "api_base": bench.url, "api_key_name": "openai"}
              for row in rows]
    (bench.folder / "extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is also YAML
    ask = lambda *words, **kw: bench.run("llm", *words, LLM_USER_PATH=str(bench.folder), **kw)
    usage = "Token usage: %d input, %d output" % tuple(bench.chat_usage)
    for what, flags in (("chat", ["--no-stream"]), ("streamed chat", [])):
        out, log = ask("-m", MODEL, QUESTION, "-o", "temperature", 0, "-u", *flags)
        bench.same(what, out, bench.chat + "\n")
        bench.same("usage of a " + what, log.strip(), usage)
    for what, flags in (("completion", ["--no-stream"]), ("streamed completion", [])):
        out, _ = ask("-m", MODEL + "-text", PROMPT, "-o", "temperature", 0, "-o", "max_tokens", 60, *flags)
        bench.same(what, out, bench.text + "\n")
    _, log = ask("-m", UNKNOWN, QUESTION, code=1)
    bench.check("unknown model", "Error code: 404" in log and UNKNOWN in log, log)


def inspect(bench):
    shutil.copy(HERE / "sums_task.py", bench.folder)  # inspect accepts only relative paths

    def evaluate(model, *flags):
        with tempfile.TemporaryDirectory(dir=bench.folder) as logs:
            bench.run("inspect", "eval", "sums_task.py", "--model", model, "--temperature", 0, "--max-retries", 0,
                      "--display", "none", "--log-format", "json", "--log-dir", logs, *flags, ABACUS_BASE_URL=bench.url,
                      ABACUS_API_KEY="EMPTY", VLLM_BASE_URL=bench.url, VLLM_API_KEY="EMPTY")
            return json.loads(next(pathlib.Path(logs).glob("*.json")).read_text())

    for provider in ("openai-api/abacus/", "vllm/"):
        for what, flags in (("chat", []), ("streamed chat", ["--stream-idle-timeout", 60])):
            log = evaluate(provider + MODEL, *flags)
            said = "%s%s" % (provider, what)
            accuracy = log["results"] and log["results"]["scores"][0]["metrics"]["accuracy"]["value"]
            bench.same(said + ", sums solved", [log["status"], accuracy], ["success", 1.0])
            call = next(event for event in log["samples"][0]["events"] if event["event"] == "model")
            bench.same(said + ", as asked", bool(call["call"]["request"].get("stream")), bool(flags))
            bench.same(said + ", text", call["output"]["choices"][0]["message"]["content"], bench.chat)
            usage = [call["output"]["usage"][key] for key in ("input_tokens", "output_tokens")]
            bench.same(said + ", usage", usage, bench.chat_usage)
        log = evaluate(provider + UNKNOWN)
        error = log["error"] or {"message": "", "traceback": ""}
        bench.check(provider + " unknown model", log["status"] == "error" and UNKNOWN in error["message"]
                    and "NotFoundError" in error["traceback"], [log["status"], error["message"]])


def aider(bench):
    """aider puts its own instructions before the question, so the small model answers wrongly. Streamed and complete answers must still be
    equal."""
    settings = bench.folder / "settings.yml"
    settings.write_text(json.dumps([{"name": "openai/" + MODEL, "extra_params": {"max_tokens": 60}}]))

    def ask(model, flag):
        counted = [bench.server.metric(name) for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")]
        out, _ = bench.run("aider", "--model", "openai/" + model, flag, "--model-settings-file", settings, "--no-check-update",
                           "--no-show-model-warnings", "--no-show-release-notes", "--no-analytics", "--yes-always", "--no-git",
                           "--no-pretty", "--edit-format", "ask", "--message", QUESTION, OPENAI_API_BASE=bench.url)
        now = [bench.server.metric(name) for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")]
        reply = re.search(r"Repo-map: disabled\n(.*?)\nTokens: (\d+) sent, (\d+) received", out, re.S)
        tokens = reply and [int(reply.group(2)), int(reply.group(3))]
        return out, reply and reply.group(1).strip(), tokens, [int(b - a) for a, b in zip(counted, now)]

    out, plain, tokens, counted = ask(MODEL, "--no-stream")
    bench.check("chat ends with a result", plain and re.search(r"\n#### \d+$", plain), out)
    bench.same("usage of a chat", tokens, counted)
    out, streamed, tokens, _ = ask(MODEL, "--stream")
    bench.check("streamed chat", plain and streamed == plain, out)
    bench.check("streamed chat counts its tokens", tokens and min(tokens) > 0, out)
    for flag in ("--no-stream", "--stream"):
        out = ask(UNKNOWN, flag)[0]
        bench.check("unknown model, " + flag, "NotFoundError" in out and UNKNOWN in out, out)


def examples(client):
    """The Python examples for a client in docs/agents.md."""
    part = re.search(r"\n### %s\n(.*?)(?=\n##)" % re.escape(client), (ROOT / "docs" / "agents.md").read_text(), re.S)
    return re.findall(r"```python\n(.*?)```", part[1], re.S)


def agent(bench):
    """Checks a library with tools, schemas and streams: agent_NAME.py prints what it received. The library's examples in docs/agents.md
    must succeed."""
    for number, code in enumerate(examples(bench.client), 1):
        out, _ = bench.run("python", "-c", code.replace("http://127.0.0.1:8000", bench.server.url).replace("my-model", MODEL))
        bench.check("example %d of docs/agents.md" % number, out.strip())
    out, _ = bench.run("python", HERE / ("agent_%s.py" % bench.client), bench.url, MODEL)
    got = json.loads(out.splitlines()[-1])
    for what, said in SAID_MORE.get(bench.client, {}).items():
        bench.same(what, got["more"].get(what), said)
    bench.check("tells of something", set(got) - {"more"}, got)
    for what in sorted(set(got) - {"more"}):
        bench.same(what, got[what], SAID[what])


def embedder(bench):
    """Checks an embedding library: embed_NAME.py prints what it received."""
    query, texts = "beads", ["hello world", "beads on wires", "a"]
    out, _ = bench.run("python", HERE / ("embed_%s.py" % bench.client), bench.url, MODEL, UNKNOWN, query, *texts)
    got = json.loads(out.splitlines()[-1])

    def vectors(texts):
        status, answer = bench.server.post("/v1/embeddings", {"model": MODEL, "input": texts})
        assert status == 200, answer
        return [entry["embedding"] for entry in answer["data"]]

    def same_vectors(what, seen, expected):
        near = len(seen) == len(expected) and all(len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-6 for a, b in zip(seen, expected))
        bench.check(what, near, seen)

    same_vectors("vectors", got["vectors"], vectors(texts))
    if "query" in got:
        same_vectors("vector of a query", [got["query"]], vectors([query]))
    if "order" in got:
        status, answer = bench.server.post("/rerank", {"model": MODEL, "query": query, "documents": texts})
        order = [result["index"] for result in answer["results"]]
        bench.same("order of documents", got["order"], [order, order])
    bench.same("unknown model", got["error"], "NotFoundError")


def seer(bench):
    """Checks that a client sends an image: see_image.py prints what it received."""
    out, _ = bench.run("python", HERE / "see_image.py", bench.client, bench.server.url, MODEL, bench.folder / "photo.png")
    got = json.loads(out.splitlines()[-1])
    bench.same("answer about an image", [got["text"], got["tokens"]], bench.seen)
    error = got["error"]
    bench.check("damaged image", "BadRequestError" in error["types"] and "damaged PNG image" in error["message"], error)


SOLVERS = {"langchain": library, "litellm": library, "llm": llm, "inspect": inspect, "aider": aider}
AGENTS = ("anthropic", "instructor", "langchain", "litellm", "openai", "pydantic-ai")
EMBEDDERS = ("cohere", "langchain", "llama-index", "openai")
SEERS = ("anthropic", "langchain", "litellm", "openai")
CLIENTS = sorted({*SOLVERS, *AGENTS, *EMBEDDERS, *SEERS})


def ask_all(bench, clients):
    """Runs all clients: [(name, function)]."""
    for bench.client, ask in clients:
        try:
            ask(bench)
        except Exception as problem:  # continue with the other clients
            bench.check("runs to its end", False, problem)


def main(names):
    unknown = [name for name in names if name not in CLIENTS]
    if unknown:
        print("unknown client %s: one of %s" % (unknown[0], ", ".join(CLIENTS)))
        return 2
    names = names or CLIENTS
    (ROOT / ".venv-clients").mkdir(exist_ok=True)
    for name in names:
        suites.make_venv(ROOT / ".venv-clients" / name, ROOT / "tests" / "requirements-clients" / (name + ".txt"))
    benches = []
    solvers = [(name, SOLVERS[name]) for name in names if name in SOLVERS]
    agents = [(name, agent) for name in names if name in AGENTS]
    embedders = [(name, embedder) for name in names if name in EMBEDDERS]
    if solvers:
        with (tempfile.TemporaryDirectory() as scratch,
              serving(ABACUS, "--max-model-len", 4096, program="vllm", name=MODEL) as server):
            benches.append(Bench(server, pathlib.Path(scratch)))
            benches[-1].solve()
            benches[-1].client = "plain HTTP"
            benches[-1].same("the sum is solved, twice", [benches[-1].chat, benches[-1].text], [ANSWER, " " + ANSWER])
            ask_all(benches[-1], solvers)
    if agents:
        with (tempfile.TemporaryDirectory() as scratch,
              serving(SCRIPTED, "--max-model-len", 4096, "--enable-auto-tool-choice", "--tool-call-parser", "hermes", name=MODEL) as server):
            benches.append(Bench(server, pathlib.Path(scratch)))
            ask_all(benches[-1], agents)
    if embedders:
        with tempfile.TemporaryDirectory() as scratch, serving(DATA / "checkpoints" / "tiny-bert", name=MODEL) as server:
            benches.append(Bench(server, pathlib.Path(scratch)))
            ask_all(benches[-1], embedders)
    seers = [(name, seer) for name in names if name in SEERS]
    if seers:
        with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as folder:
            eyes.write_eyes(pathlib.Path(folder))
            (pathlib.Path(scratch) / "photo.png").write_bytes(eyes.FILES["rgb.png"])
            with serving(folder, "--dtype", "float32", "--max-model-len", 512, name=MODEL) as server:
                benches.append(Bench(server, pathlib.Path(scratch)))
                status, answer = server.post("/v1/chat/completions", {**eyes.body(eyes.data_url("rgb.png"), ignore_eos=False), "model": MODEL})
                assert status == 200, answer
                benches[-1].seen = [answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]]
                ask_all(benches[-1], seers)
    passed, failed = sum(bench.passed for bench in benches), sum(bench.failed for bench in benches)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
