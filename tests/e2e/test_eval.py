"""Tests `sluice eval`, which works without lm_eval: scoring in process, comparison with a baseline, and errors."""
import json
import resource
import threading

import pytest

from recording import recording
from serving import ABACUS, PATIENCE_S, deaf_port, run

SUMS = ABACUS / "heldout.jsonl"
FEW = ("--num-fewshot", 0, "--limit", 20, "--no-apply-chat-template")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    """The score of twenty questions, computed in process."""
    path = tmp_path_factory.mktemp("eval") / "score.json"
    result = run("eval", SUMS, "--model", ABACUS, "--max-model-len", 1024, *FEW, "--output-path", path)
    assert result.returncode == 0, result.stderr
    assert "|gsm8k-style|      3|flexible-extract|     0|exact_match|" in result.stdout
    assert "hint" not in result.stderr  # the model's own format scores no higher
    return path


def test_in_process_and_by_url_score_the_same(baseline, abacus, tmp_path):
    path = tmp_path / "score.json"
    result = run("eval", SUMS, "--base-url", abacus.url, *FEW, "--output-path", path)
    assert result.returncode == 0, result.stderr
    assert json.loads(path.read_text())["results"] == json.loads(baseline.read_text())["results"]
    assert json.loads(path.read_text())["results"]["gsm8k-style"]["sample_len"] == 20


def test_baseline_holds(baseline, abacus):
    result = run("eval", SUMS, "--base-url", abacus.url, *FEW, "--baseline", baseline)
    assert result.returncode == 0, result.stderr
    result = run("eval", SUMS, "--base-url", abacus.url, "--num-fewshot", 0, "--apply-chat-template", "--limit", 1)
    assert result.returncode == 0 and "--apply-chat-template" not in result.stderr, result.stderr


def score_of(result):
    return json.loads(result.stdout)["results"]["gsm8k-style"]["exact_match,strict-match"]


def test_the_defaults_ask_as_the_model_was_trained(abacus):
    """The default for a model with a template is a chat without examples. If another format scores higher than the requested one, the
    program reports it."""
    result = run("eval", SUMS, "--base-url", abacus.url, "--limit", 40)
    assert result.returncode == 0, result.stderr
    assert "local-chat-completions" in result.stdout and "num_fewshot: 0" in result.stdout
    assert "95 % confidence: flexible-extract 0." in result.stdout and "hint" not in result.stderr
    result = run("eval", SUMS, "--base-url", abacus.url, "--limit", 40, "--json")
    assert score_of(result) > 0.85
    low, high = json.loads(result.stdout)["results"]["gsm8k-style"]["exact_match_confidence95,strict-match"]
    assert 0.7 < low < score_of(result) <= high <= 1
    few = run("eval", SUMS, "--base-url", abacus.url, "--limit", 40, "--num-fewshot", 5, "--json")
    assert score_of(few) < 0.5
    assert "are answered correctly with these prompts, and" in few.stderr and "--apply-chat-template --num-fewshot 0" in few.stderr
    # The address of an endpoint selects the format.
    plain = run("eval", SUMS, "--base-url", abacus.url + "/v1/completions", "--limit", 2)
    assert "local-completions" in plain.stdout and "num_fewshot: 5" in plain.stdout


def test_a_drop_below_the_baseline_fails(baseline, abacus, tmp_path):
    scores = json.loads(baseline.read_text())
    scores["results"]["gsm8k-style"]["exact_match,strict-match"] += 0.04
    better = tmp_path / "better.json"
    better.write_text(json.dumps(scores))
    result = run("eval", SUMS, "--base-url", abacus.url, *FEW, "--baseline", better, "--max-drop", 0.03)
    assert result.returncode == 1
    assert "strict-match dropped from" in result.stderr and "flexible-extract" not in result.stderr
    assert run("eval", SUMS, "--base-url", abacus.url, *FEW, "--baseline", better, "--max-drop", 0.05).returncode == 0


@pytest.mark.parametrize("words, code, message", [
    ((SUMS,), 2, "Give the --url of a running server, or --model"),
    ((), 2, "which questions?"),
    (("no-such.jsonl", "--model", ABACUS), None, "no-such.jsonl"),
    ((SUMS, "--model", ABACUS, "--baseline", SUMS), 2, "--baseline"),
    ((SUMS, "--model", ABACUS, "--num-fewshot", 600), 2, "--num-fewshot needs 601 solved examples, found 510"),
    ((SUMS, "--base-url", "http://127.0.0.1:%d" % deaf_port(), "--model", "m", "--max-retries", 0, *FEW), 5, "question"),
])
def test_what_is_wrong_is_said(words, code, message):
    result = run("eval", *words)
    assert message in result.stderr
    assert result.returncode == code if code is not None else result.returncode != 0


def test_a_wrong_model_name_is_the_servers_error(abacus):
    result = run("eval", SUMS, "--base-url", abacus.url, "--model", "other", *FEW)
    assert result.returncode != 0 and "404" in result.stderr


def test_more_questions_at_a_time_than_the_shell_lets_files_be_open():
    """The program raises the soft limit of open files as far as allowed."""
    at_once = 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * at_once:
        pytest.skip("the hard limit of open files is %d" % hard)
    all_here = threading.Event()

    def script(i, body):
        if i == at_once - 1:
            all_here.set()
        all_here.wait(PATIENCE_S)
        return 200, "application/json", '{"choices": [{"text": "#### 1"}]}'

    with recording(script) as server:
        result = run("eval", SUMS, "--base-url", server.url, "--model", "m", "--num-fewshot", 0, "--no-apply-chat-template", "--limit", at_once, "--num-concurrent", at_once,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)))
        all_here.set()
    assert result.returncode == 0, result.stderr
    assert "limit: %d" % at_once in result.stdout
