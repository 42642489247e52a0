"""A running server reloads files on SIGHUP; the signal never ends the server."""
import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import threading

import pytest
from test_start import streaming

from serving import (
    ABACUS,
    DATA,
    PATIENCE_S,
    command,
    end,
    run,
    serving,
    wait_until,
    wait_until_ready,
)

LLAMA = DATA / "checkpoints" / "llama-bf16"
COMMON = ("--max-model-len", 256, "--threads", 2)


def status(server, key):
    return server.request("GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0]


def reload_and_hear(server, words):
    """Sends SIGHUP; waits until `words` appear in the log once more than before."""
    before = server.log().count(words)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log().count(words) > before, server.log)


def test_a03_keys_that_change_while_it_serves(tmp_path):
    """Within a second a new key is accepted and an old one rejected; a stream continues, and no request fails meanwhile."""
    keys = tmp_path / "keys"
    keys.write_text("sk-old-0001\nsk-both-0001\n")
    keys.chmod(0o600)
    with serving(ABACUS, "--max-model-len", 4096, "--api-key-file", keys, "--api-key", "sk-line-0001") as server:
        assert [status(server, key) for key in ("sk-old-0001", "sk-new-0001", "sk-line-0001")] == [200, 401, 200]
        assert "sk-" not in server.log()
        over, failed, asked = threading.Event(), [], []

        def ask():
            while not over.is_set():
                asked.append(status(server, "sk-both-0001"))
                if asked[-1] != 200:
                    failed.append(asked[-1])

        asker = threading.Thread(target=ask)
        asker.start()
        try:
            with streaming(server, key="sk-old-0001", max_tokens=600) as client:
                keys.write_text("# rotated\nsk-both-0001\nsk-new-0001\n")
                server.process.send_signal(signal.SIGHUP)
                wait_until(lambda: status(server, "sk-new-0001") == 200, server.log)
                assert [status(server, key) for key in ("sk-old-0001", "sk-line-0001")] == [401, 200]
                for bad, words in [("two words", "line 1: expected one key"), ("", "expected at least one key")]:
                    keys.write_text(bad)
                    reload_and_hear(server, "reloading the API keys failed; the old keys stay valid: --api-key-file %s: %s" % (keys, words))
                    assert status(server, "sk-new-0001") == 200
                keys.unlink()
                reload_and_hear(server, "reloading the API keys failed; the old keys stay valid: --api-key-file %s: " % keys)
                rest = b"".join(iter(lambda: client.recv(1 << 16), b""))
                assert b"data: [DONE]" in rest
        finally:
            over.set()
            asker.join()
        assert asked and not failed
        assert server.stop() == 0


def test_keys_of_a_file_are_checked_at_start(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo words\n")
    refused = run("serve", LLAMA, "--api-key-file", keys)
    assert refused.returncode == 2
    assert "--api-key-file %s: line 2: expected one key" % keys in refused.stderr and "two words" not in refused.stderr
    assert run("serve", LLAMA, "--api-key-file", tmp_path / "none").returncode == 2
    keys.write_text("sk-open-0001\n")
    keys.chmod(0o644)
    with serving(LLAMA, *COMMON, "--api-key-file", keys, "--protect-all") as server:
        assert "every user of this machine may read the keys (mode 0644)" in server.log()
        assert server.get("/metrics")[0] == 401
        assert server.get("/ready")[0] == 200 and server.get("/health")[0] == 200


def test_f06_the_log_level_of_a_file(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("log-level: warning\n")
    # At this log level no line reports that the server is ready.
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(command("serve", LLAMA, "--host", "127.0.0.1", "--uds", tmp_path / "s", "--config", config, *COMMON),
                                   stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

        def text():
            with open(log.name) as file:
                return file.read()

        try:
            wait_until(lambda: "Application startup complete." in text(), text)
            assert " INFO access" not in text()
            config.write_text("log-level: info\nmax-num-seqs: 3\n")
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the log level is info" in text(), text)
            assert "the new values of max-num-seqs take effect at the next start" in text()
            config.write_text("log-level: loud\n")
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: "ERROR serve reloading the configuration failed; the log level is unchanged: " in text() and str(config) in text(), text)
            assert process.poll() is None
        finally:
            end(process)


def test_f06_a_hangup_while_it_drains():
    with serving(ABACUS, "--max-model-len", 4096, "--shutdown-timeout", PATIENCE_S) as server:
        with streaming(server, max_tokens=1500) as client:
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "draining: new requests are refused" in server.log(), server.log)
            for _ in range(3):
                server.process.send_signal(signal.SIGHUP)
            rest = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert b"data: [DONE]" in rest, rest[-1000:]
        assert server.process.wait(PATIENCE_S) == 0


def test_f06_hangups_while_it_starts():
    """SIGHUP never ends the program once the first log line is written."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(command("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, *COMMON), stdout=log, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL)

        def text():
            with open(log.name) as file:
                return file.read()

        try:
            wait_until(text, "no line of its log")

            def is_ready():
                process.send_signal(signal.SIGHUP)
                assert process.poll() is None, text()
                return "Application startup complete." in text()

            wait_until(is_ready, text)
            wait_until(lambda: "SIGHUP: reloading the log level, API keys and certificates" in text(), text)
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            end(process)


@contextlib.contextmanager
def telling_its_help(*words, program):
    """Starts the program so that it blocks while it writes its help to a pipe that is too small: it has started, but does not serve yet.
    Yields the process and a function that reads the rest."""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as pipe:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        process = subprocess.Popen(command(*words, "--help=all", program=program), stdout=writer, stdin=subprocess.DEVNULL)
        os.close(writer)
        try:
            assert pipe.read(1)
            yield process, pipe.readall
        finally:
            end(process)


@pytest.mark.parametrize("program, words", [("sluice", ["serve"]), ("vllm", ["serve"]), ("trtllm-serve", ["serve"]), ("trtllm-serve", ["acme/model"])])
def test_a_hangup_while_options_are_read(program, words):
    with telling_its_help(*words, program=program) as (process, read):
        process.send_signal(signal.SIGHUP)
        read()
        assert process.wait(PATIENCE_S) == 0


def test_a_hangup_ends_other_commands():
    with telling_its_help("chat", program="sluice") as (process, _):
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE_S) == -signal.SIGHUP


def test_f06_nohup():
    """If SIGHUP is ignored at start, it stays ignored."""
    with serving(LLAMA, *COMMON, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.complete("Tom", max_tokens=2) is not None
        assert "SIGHUP" not in server.log()


def test_a05_certificates_at_a_hangup(tmp_path):
    from test_tls import make_certificate, s_client, starting

    certificate, key = make_certificate(tmp_path, "first")
    second_certificate, second_key = make_certificate(tmp_path, "second")
    with starting("--ssl-certfile", certificate, "--ssl-keyfile", key) as (process, log):
        port = wait_until_ready(process, log)
        good = certificate.read_text()
        certificate.write_text("no certificate")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloading the certificate failed; the old one stays in use: --ssl-certfile %s" % certificate in open(log).read(), "no word of it")
        assert "CN = first" in s_client(port).stdout
        certificate.write_text(good)
        os.replace(second_certificate, certificate)
        os.replace(second_key, key)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "CN = second" in s_client(port).stdout, "the new certificate is not served", 30)
