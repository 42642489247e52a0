"""Unusual environments at the program's start: closed file descriptors, limits of files and threads, an output pipe without a reader."""
import os
import pathlib
import resource
import subprocess

import pytest

from serving import ABACUS, PATIENCE_S, command, run, serving, serving_unheard

PRINTING = [("version",), ("--version",), ("help",), ("serve", "--help"), ("explain-options", "serve", "m"), ("inspect", ABACUS), ("list", "--json"),
            ("no-such-command",), ("serve", "--no-such-option")]


def with_shell(redirections, *words):
    """Runs the program under a shell with these redirections."""
    return subprocess.run(["sh", "-c", 'exec "$@" ' + redirections, "sh", *command(*words)], capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("words", PRINTING, ids=lambda words: str(words[0]))
@pytest.mark.parametrize("redirections", ["<&- >&- 2>&-", ">&- 2>&-", ">/dev/full 2>/dev/full", ">&-"])
def test_f12_output_that_cannot_be_written_is_a_code(words, redirections):
    done = with_shell(redirections, *words)
    expected = run(*words).returncode
    assert 0 < done.returncode < 8, (words, done)
    assert expected == 0 or done.returncode == expected
    if redirections == ">&-" and expected == 0:
        assert "standard output: Bad file descriptor" in done.stderr, done.stderr


def test_f12_a_reader_that_goes_away_is_told_by_the_code_alone():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command("help", "serve"), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
    # Generation stops when nobody reads the answer.
    words = command("complete", ABACUS, "-q", "Tom has 3", "--max-tokens", 4000, "--temperature", 0)
    pipe = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pipe.stdout.close()
    said = pipe.stderr.read()
    assert pipe.wait(PATIENCE_S) == 1 and b"error" not in said, said


def test_f12_a_server_keeps_closed_descriptors_closed_to_its_sockets():
    """No socket, event or model file gets the descriptor of standard input, output or error."""
    def closed(words, **kw):
        return subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words], **{key: value for key, value in kw.items() if key != "stdin"})

    with serving_unheard(ABACUS, output=closed) as server:
        for number in range(3):
            assert pathlib.Path("/proc/%d/fd/%d" % (server.process.pid, number)).readlink() == pathlib.Path("/dev/null")
        assert server.complete("Tom", max_tokens=2)["text"] is not None
        assert server.stop() == 0


def limited(kind, value):
    return lambda: resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def test_f12_a_limit_of_file_sizes_is_an_error_and_no_signal(tmp_path):
    log = tmp_path / "log"
    with open(log, "w") as file:
        done = subprocess.run(command("help", "serve", "all"), stdout=file, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S,
                              preexec_fn=limited(resource.RLIMIT_FSIZE, 4096))
    assert done.returncode == 1 and "standard output: File too large" in done.stderr, done
    assert log.stat().st_size <= 4096
    out = tmp_path / "out"
    done = subprocess.run(command("quantize", ABACUS, out, "--to", "fp8-dynamic"), capture_output=True, text=True, timeout=PATIENCE_S,
                          preexec_fn=limited(resource.RLIMIT_FSIZE, 100_000))
    assert 0 < done.returncode < 8 and "File too large" in done.stderr, done
    with serving(ABACUS, "--enable-response-store", "--response-store", tmp_path / "responses",
                 preexec_fn=limited(resource.RLIMIT_FSIZE, 100_000)) as server:
        for _ in range(30):
            server.post("/v1/responses", {"model": "m", "input": "Tom has 3 apples. " * 100, "max_output_tokens": 16})
        assert server.process.poll() is None and server.get("/health")[0] == 200


def test_r05_a_limit_of_threads_is_named_with_its_value():
    """The limit does not apply to root, so run as another user, which may have 30 threads."""
    if os.geteuid() != 0:
        pytest.skip("another user to become needs root")
    nobody = 65534
    words = ["setpriv", "--reuid", str(nobody), "--clear-groups", *command("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, "--threads", 2)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, cwd="/", preexec_fn=limited(resource.RLIMIT_NPROC, 7))
    assert 0 < done.returncode < 8, done
    assert "refuses" in done.stderr and "ulimit -u of this user 7" in done.stderr, done.stderr
