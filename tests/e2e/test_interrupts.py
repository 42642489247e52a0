"""Ctrl-C ends every wait for a server; the results so far are kept."""
import contextlib
import json
import os
import signal
import subprocess
import threading

from recording import recording, stream, token
from serving import ABACUS, PATIENCE_S, command, end, wait_until

RANDOM = ("--model", "m", "--tokenizer", ABACUS, "--dataset-name", "random", "--random-input-len", 8, "--random-output-len", 2)


@contextlib.contextmanager
def stuck_at(path, number=0):
    """A server that answers with a token, except to request `number` to this path, which hangs. Yields the server and an event that is set
    when that request arrives."""
    asked, over = threading.Event(), threading.Event()

    def script(i, body):
        with server.lock:
            place = server.seen[i][0], [other for other, _, _ in server.seen[:i]].count(path)
        if place == (path, number):
            asked.set()
            over.wait(PATIENCE_S)
        return stream(token("a"))

    with recording(script) as server:
        try:
            yield server, asked
        finally:
            over.set()


def interrupted(asked, *words, text=None):
    """Runs the program, sends SIGINT once the server has received the request, and returns the output."""
    process = subprocess.Popen(command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if text is not None:
            process.stdin.write(text)
            process.stdin.flush()
        assert asked.wait(PATIENCE_S)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)
    assert process.returncode == 130, (process.returncode, out, err)
    return out


def test_a_server_that_does_not_say_its_models():
    with stuck_at("/v1/models") as (server, asked):
        interrupted(asked, "chat", "--url", server.url, "--quick", "x")


def test_a_script_does_not_go_on_with_its_next_question():
    for program, path in (("chat", "/v1/chat/completions"), ("complete", "/v1/completions")):
        with stuck_at(path) as (server, asked):
            interrupted(asked, program, "--url", server.url, "--model-name", "m", text="one\ntwo\n")
            assert len(server.seen) == 1


def test_a_conversation_goes_on_with_the_next_question():
    """On a terminal, Ctrl-C ends an answer, not the program; Ctrl-D ends the program."""
    with stuck_at("/v1/chat/completions") as (server, asked):
        ours, its = os.openpty()
        try:
            process = subprocess.Popen(command("chat", "--url", server.url, "--model-name", "m"), stdin=its,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                os.write(ours, b"one\n")
                assert asked.wait(PATIENCE_S)
                process.send_signal(signal.SIGINT)
                os.write(ours, b"two\n")
                wait_until(lambda: len(server.seen) == 2, "the second question is not asked")
                os.write(ours, b"\x04")
                out, err = process.communicate(timeout=PATIENCE_S)
            finally:
                end(process)
        finally:
            os.close(ours)
            os.close(its)
    assert process.returncode == 0 and not err and out.splitlines() == ["> ", "> a", "> "], (process.returncode, out, err)


def test_a_profile_that_does_not_begin():
    with stuck_at("/start_profile") as (server, asked):
        out = interrupted(asked, "bench", "serve", "--port", server.port, *RANDOM, "--num-prompts", 2, "--profile")
        assert "Interrupted: " in out
        assert "/stop_profile" in [path for path, _, _ in server.seen]


def test_a_sweep_keeps_its_earlier_steps(tmp_path):
    """The sweep's first step has a warm-up and two requests; the warm-up of its second step hangs."""
    with stuck_at("/v1/completions", 3) as (server, asked):
        interrupted(asked, "bench", "sweep", "--port", server.port, *RANDOM, "--concurrencies", "1,2", "--num-prompts", 2, "--num-warmups", 1,
                    "--result-dir", tmp_path, "--result-filename", "s")
    assert [step["completed"] for step in json.loads((tmp_path / "s.json").read_text())["steps"]] == [2]
