"""A new user's first minute: help that fits a screen, other programs' names, suggestions, `run`, and where the server listens."""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import tempfile

import pytest
from test_chat_terminal import chatting
from test_tls import starting

from serving import (
    ABACUS,
    PATIENCE_S,
    command,
    end,
    run,
    serving,
    wait_until,
    wait_until_ready,
)

QUESTION = "Tom has 3 apples. He buys 4 more. How many apples does he have now?"


def lines_of(*words, program="sluice"):
    done = run(*words, program=program)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("words", [("serve", "-h"), ("help", "serve"), ("serve", "--help"), ("help",), ("help", "bench"), ("bench",), ("bench", "-h"),
                                   ("help", "recipe"), ("recipe",), ("chat", "-h"), ("run", "-h"), ("bench", "serve", "-h"), ("help", "exit-codes"), ()])
def test_help_fits_a_screen_of_80_columns(words):
    lines = lines_of(*words)
    assert 2 <= len(lines) <= 60
    assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]


def test_the_first_page_of_serve_has_what_people_use(abacus):
    lines = lines_of("serve", "-h")
    options = [line for line in lines if line.startswith("  --")]
    assert 25 <= len(options) <= 40
    for flag in ("--port", "--host", "--api-key", "--max-model-len", "--tool-call-parser", "--check", "--config"):
        assert any(line.startswith("  %s " % flag) for line in options), flag
    assert "--help all" in lines[-1] and "sluice help serve WORD" in lines[-1]


def test_the_rest_is_behind_a_word():
    everything = "\n".join(lines_of("serve", "--help", "all"))
    assert everything == "\n".join(lines_of("serve", "--help=all")) == "\n".join(lines_of("help", "serve", "all"))
    assert everything.count("--") > 200 and "--enable-log-outputs" in everything
    some = "\n".join(lines_of("help", "serve", "log"))
    assert "--log-level" in some and "--enable-log-outputs" in some and "--port" not in some
    assert max(map(len, everything.splitlines())) <= 120  # words are not broken, so a line may be longer than the screen
    assert "matches 'nonsense'" in "\n".join(lines_of("help", "serve", "nonsense"))


def test_families_of_commands():
    bench = "\n".join(lines_of("help", "bench"))
    assert all(name in bench for name in ("bench serve", "bench sweep", "bench latency", "bench throughput")) and "recipe" not in bench
    assert "recipe lint" in "\n".join(lines_of("help", "recipe"))
    assert "--percentile-metrics" in "\n".join(lines_of("help", "bench", "serve", "percentile"))
    done = run("help", "bensh")
    assert done.returncode == 2 and "bench" in done.stderr


@pytest.mark.parametrize("word, name", [("ls", "list"), ("models", "list"), ("download", "pull"), ("convert", "quantize"), ("show", "inspect"),
                                        ("delete", "rm"), ("remove", "rm"), ("evaluate", "eval")])
def test_names_of_other_programs_are_understood(word, name):
    assert lines_of("help", word) == lines_of("help", name)
    assert lines_of(word, "-h") == lines_of(name, "-h")


@pytest.mark.parametrize("typo", ["r", "rn", "rmm", "tm", "rum", "ru", "em", "srve", "lsit", "remov", "rm-all", "m"])
def test_no_suggestion_removes_anything(typo):
    done = run(typo)
    assert done.returncode == 2 and "unknown command" in done.stderr
    assert not re.search(r"did you mean.*\brm\b", done.stderr), done.stderr


def place_with_a_model(folder):
    repository = folder / "hub" / "models--org--small"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123456789abcdef0123456789abcdef01234567")
    shutil.copytree(ABACUS, repository / "snapshots" / "0123456789abcdef0123456789abcdef01234567")
    return repository, {"HF_HOME": str(folder)}


def test_rm_asks_or_is_told(tmp_path):
    repository, env = place_with_a_model(tmp_path)
    done = run("rm", "org/small", env=env)
    assert done.returncode == 2 and "--yes" in done.stderr and repository.exists()
    for answer, code, is_there in (("n\n", 130, True), ("\n", 130, True), ("y\n", 0, False)):
        ours, its = pty.openpty()
        process = subprocess.Popen(command("rm", "org/small"), stdin=its, stdout=its, stderr=its, env={**os.environ, **env})
        os.close(its)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(ours, 1024)
        assert b"org/small" in seen and b"MiB" in seen
        os.write(ours, answer.encode())
        assert process.wait(PATIENCE_S) == code
        os.close(ours)
        assert repository.exists() == is_there
    repository, env = place_with_a_model(tmp_path / "again")
    assert run("remove", "org/small", "-y", env=env).returncode == 0 and not repository.exists()


def test_ps_lists_what_a_server_has(abacus):
    lines = lines_of("ps", "--url", abacus.url)
    assert lines[0].split() == ["MODEL", "TOKENS", "AT"] and lines[1].split() == ["m", "4096", abacus.url]
    assert json.loads("".join(lines_of("ps", "--url", abacus.url + "/v1", "--json")))[0]["id"] == "m"


def test_a_folder_that_is_spelt_wrong(tmp_path):
    for words in (("chat", "modles/abacus", "x"), ("serve", "models/abcus"), ("modles/abacus",)):
        done = run(*words, cwd=ABACUS.parents[1])
        assert done.returncode in (3, 5) and "did you mean models/abacus?" in done.stderr, (words, done.stderr)


def test_an_option_that_was_taken_for_another():
    done = run("serve", ABACUS, "--prot", 3)
    assert done.returncode == 2
    assert "--prot was taken for --protect-all" in done.stderr and "did you mean --port" in done.stderr, done.stderr
    done = run("serve", ABACUS, "--max-model", "many")
    assert done.returncode == 2 and "taken for --max-model-len" in done.stderr, done.stderr


def test_a_text_after_the_model():
    for words in (("chat", ABACUS, QUESTION), ("chat", ABACUS, *QUESTION.split()), ("run", ABACUS, QUESTION, "--port", 0), (ABACUS, QUESTION, "--port", 0)):
        done = run(*words, "--temperature", 0, "--max-tokens", 40)
        assert done.returncode == 0 and "#### 7" in done.stdout, (words, done.stderr)
        assert "KV cache" not in done.stderr and done.stderr == "", done.stderr
    done = run("complete", ABACUS, "Tom has 3", "--temperature", 0, "--max-tokens", 3)
    assert done.returncode == 0 and done.stdout.strip()
    done = run("chat", QUESTION)
    assert done.returncode == 2 and "give the model before the text" in done.stderr
    done = run("chat", ABACUS, "a", "-q", "b")
    assert done.returncode == 2 and "--quick" in done.stderr


def test_a_text_for_a_running_server(abacus):
    for words in (("chat", "--url", abacus.url, QUESTION), ("chat", "m", QUESTION, "--url", abacus.url), ("chat", "--model", "m", "--url", abacus.url, QUESTION)):
        done = run(*words, "--temperature", 0, "--max-tokens", 40)
        assert done.returncode == 0 and "#### 7" in done.stdout, (words, done.stderr)


def memory_of(process):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc/%d/status" % process.pid).read_text())[1]) << 10


def test_a_conversation_takes_a_small_cache_and_prints_no_plan(tmp_path):
    with chatting(None, tmp_path) as terminal:
        terminal.prompted()
        assert "KV cache" not in terminal.plain() and "weights" not in terminal.plain(), terminal.plain()
        assert memory_of(terminal.process) < 2 << 30
        terminal.leave()


def test_a_greeting_and_the_ways_out(abacus, tmp_path):
    for way in ("/bye", "/exit", "/quit", "/q"):
        with chatting(abacus, tmp_path) as terminal:
            terminal.prompted()
            assert "m at %s" % abacus.url in terminal.plain() and "/bye" in terminal.plain() and "/?" in terminal.plain()
            assert "/bye" in terminal.line("/?") and "/save FILE" in terminal.line("/h")
            terminal.prompted()
            terminal.keys(way + "\r")
            assert terminal.process.wait(60) == 0


def test_what_is_typed_ahead_is_kept(abacus, tmp_path):
    """Lines typed during an answer, or before the first prompt, become the next questions."""
    with chatting(abacus, tmp_path, "--max-tokens", 60) as terminal:
        terminal.keys("/system be short\r")  # before the program is ready
        terminal.shows("system: be short")
        terminal.prompted()
        terminal.mark = len(terminal.seen)
        terminal.keys("first\r")
        terminal.keys("second\rthi")
        wait_until(lambda: terminal.text().count("\x1b[?2004h") >= 2, terminal.text)
        terminal.keys("rd\r")
        wait_until(lambda: terminal.text().count("\x1b[?2004h") >= 3, terminal.text)
        terminal.mark = len(terminal.seen)
        terminal.keys("/save talk.json\r")
        terminal.shows("saved")
        asked = [m["content"] for m in json.loads((tmp_path / "talk.json").read_text())["messages"] if m["role"] == "user"]
        assert asked == ["first", "second", "third"]
        terminal.leave()


def test_run_serves_while_it_chats(tmp_path):
    with tempfile.TemporaryDirectory() as home:
        ours, its = pty.openpty()
        process = subprocess.Popen(command(ABACUS, "--port", 0, "--temperature", 0), stdin=its, stdout=its, stderr=its, cwd=home,
                                   env={**os.environ, "HOME": home, "TERM": "xterm"})
        os.close(its)
        seen = b""
        try:
            while b"/bye" not in seen:
                seen += os.read(ours, 4096)
            url = re.search(r"http://127\.0\.0\.1:\d+", seen.decode())[0]
            done = run("chat", "--url", url, "--max-tokens", 40, "--temperature", 0, QUESTION)
            assert done.returncode == 0 and "#### 7" in done.stdout, done.stderr
            assert subprocess.run(["curl", "-fsS", "-H", "Accept: text/html", url + "/"], capture_output=True, text=True).stdout.startswith("<!DOCTYPE html>")
            os.write(ours, b"/bye\r")
            assert process.wait(PATIENCE_S) == 0
        finally:
            end(process)
            os.close(ours)


def addresses(log):
    return re.search(r"serving \S+ at (\S+), ready", pathlib.Path(log).read_text())[1]


def test_where_it_listens_and_what_to_do_next():
    """By default only this machine can connect; under the name vllm every machine can, as in vLLM."""
    words = ("serve", ABACUS, "--port", 0, "--max-model-len", 512)
    for program, host, has_next in (("sluice", "127.0.0.1", True), ("vllm", "0.0.0.0", False)):
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
            process = subprocess.Popen(command(*words, program=program), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            try:
                port = wait_until_ready(process, log.name)
                assert addresses(log.name) == "http://%s:%d" % (host, port)
                wait_until(lambda: "Application startup complete" in open(log.name).read(), "not ready")
                text = open(log.name).read()
                step = "open http://127.0.0.1:%d/ in a browser, or talk to it: sluice chat --url http://127.0.0.1:%d" % (port, port)
                assert (step in text) == has_next, text
            finally:
                end(process)
    with starting("--host", "0.0.0.0", "--disable-web") as (process, log):
        port = wait_until_ready(process, log)
        wait_until(lambda: "talk to it: sluice chat --url http://127.0.0.1:%d\n" % port in open(log).read(), lambda: open(log).read())


def test_run_finds_a_free_port():
    with serving(ABACUS, "--max-model-len", 512) as server:
        done = run("run", ABACUS, QUESTION, "--port", server.port, "--temperature", 0)
        assert done.returncode == 6 and str(server.port) in done.stderr
