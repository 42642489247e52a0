"""All client commands (chat, complete, ps, bench, eval, run-batch) connect by http, https and unix sockets, with the same options."""
import contextlib
import json
import pathlib
import tempfile

import pytest
from test_tls import make_certificate, starting

from serving import ABACUS, BIN, run, wait_until, wait_until_ready

QUESTION = "Tom has 3 apples. He buys 4 more. How many apples does he have now?"
KEY = "sk-bead-0001"


@pytest.fixture
def folder():
    """A folder with a short path: the path of a socket may have at most 107 bytes."""
    with tempfile.TemporaryDirectory() as path:
        yield pathlib.Path(path)


@contextlib.contextmanager
def secure(folder, *flags):
    """(address, certificate file) of a server with HTTPS and an API key."""
    certificate, key = make_certificate(folder, "server")
    with starting("--ssl-certfile", certificate, "--ssl-keyfile", key, "--api-key", KEY, *flags) as (process, log):
        yield "https://127.0.0.1:%d" % wait_until_ready(process, log), certificate


def commands(url, folder):
    """The arguments of each command, and a check of its output."""
    (folder / "q.jsonl").write_text(json.dumps({"question": QUESTION, "answer": "#### 7"}) + "\n")
    (folder / "batch.jsonl").write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {
        "model": "m", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 40}}) + "\n")
    out = folder / "answers.jsonl"
    return [
        (("chat", "--url", url, "--temperature", 0, "--max-tokens", 40, "-q", QUESTION), lambda text: "#### 7" in text),
        (("complete", "--url", url, "--max-tokens", 4, "--temperature", 0, "-q", "Tom has 3"), lambda text: text.strip()),
        (("ps", "--url", url), lambda text: "MODEL" in text and "m " in text),
        (("bench", "serve", "--url", url, "--model", ABACUS, "--served-model-name", "m", "--random-input-len", 16, "--random-output-len", 4,
          "--num-prompts", 6, "--max-concurrency", 3), lambda text: "Successful requests:                     6" in text),
        (("eval", folder / "q.jsonl", "--url", url), lambda text: "strict-match" in text),
        (("run-batch", "--url", url, "-i", folder / "batch.jsonl", "-o", out), lambda text: "#### 7" in out.read_text()),
    ]


def test_every_command_speaks_https(folder):
    with secure(folder) as (url, certificate):
        (folder / "key").write_text("# the key\n%s\n" % KEY)
        for flags in (("--cacert", certificate, "--api-key-file", folder / "key"), ("--insecure", "--api-key", KEY)):
            for words, is_right in commands(url, folder):
                done = run(*words, *flags)
                assert done.returncode == 0 and is_right(done.stdout), (words, flags, done.stdout, done.stderr)
        # The environment provides the key and the trusted certificate.
        for words, is_right in commands(url, folder):
            done = run(*words, env={"OPENAI_API_KEY": KEY, "SSL_CERT_FILE": str(certificate)})
            assert done.returncode == 0 and is_right(done.stdout), (words, done.stdout, done.stderr)


def test_what_is_not_to_be_trusted_is_refused(folder):
    other, _ = make_certificate(folder, "stranger")
    with secure(folder) as (url, certificate):
        for words, said in [((), "is not trusted"), (("--cacert", other), "is not trusted"), (("--cacert", folder / "none"), "--cacert"),
                            (("--key", folder / "x"), "--cert")]:
            done = run("chat", "--url", url, "--api-key", KEY, "-q", "x", *words)
            assert done.returncode in (2, 5) and said in done.stderr, (words, done.stderr)
        # localhost is not a name in the certificate.
        done = run("chat", "--url", url.replace("127.0.0.1", "localhost"), "--api-key", KEY, "--cacert", certificate, "-q", "x")
        assert done.returncode == 5 and "not trusted" in done.stderr, done.stderr
        done = run("chat", "--url", url, "--cacert", certificate, "-q", "x")
        assert done.returncode == 2 and "401" in done.stderr, done.stderr
        done = run("chat", "--url", url.replace("https", "http"), "-q", "x")
        assert done.returncode != 0 and "HTTPS" in done.stderr, done.stderr


def test_https_to_a_server_that_does_not_speak_it(abacus):
    done = run("chat", "--url", abacus.url.replace("http", "https"), "-q", "x")
    assert done.returncode == 5 and "does not use TLS" in done.stderr, done.stderr
    done = run("chat", "--url", abacus.url, "--cacert", "x", "-q", "x")
    assert done.returncode == 2 and "--cacert" in done.stderr and "not encrypted" in done.stderr, done.stderr


def test_a_certificate_of_the_client(folder):
    mine, my_key = make_certificate(folder, "mine")
    both = folder / "both.pem"
    both.write_text(mine.read_text() + my_key.read_text())
    with secure(folder, "--ssl-ca-certs", mine, "--ssl-cert-reqs", 2) as (url, certificate):
        trusted = ("--cacert", certificate, "--api-key", KEY)
        for flags in (("--cert", mine, "--key", my_key), ("--cert", both)):
            done = run("ps", "--url", url, *trusted, *flags)
            assert done.returncode == 0 and "m " in done.stdout, done.stderr
        done = run("ps", "--url", url, *trusted)
        assert done.returncode == 5 and "certificate required" in done.stderr, done.stderr
        done = run("bench", "serve", "--url", url, *trusted, "--cert", both, "--model", ABACUS, "--served-model-name", "m", "--random-input-len", 16,
                   "--random-output-len", 4, "--num-prompts", 6)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_speaks_to_a_unix_socket(folder):
    path = folder / "k.sock"
    with starting("--uds", path) as (_, log):
        wait_until(lambda: "Application startup complete" in open(log).read(), lambda: open(log).read())
        assert "sluice chat --url unix://%s" % path in open(log).read()
        for words, is_right in commands("unix://%s" % path, folder):
            done = run(*words)
            assert done.returncode == 0 and is_right(done.stdout), (words, done.stdout, done.stderr)
    done = run("chat", "--url", "unix://%s" % path, "-q", "x")
    assert done.returncode == 5 and "no server answers at unix://%s" % path in done.stderr and "--uds" in done.stderr


@pytest.mark.parametrize("url, said", [("unix://x/y", "unix:///"), ("unix:///" + 200 * "x", "bytes"), ("ftp://x", "http, https or unix"),
                                       ("http://", "host is missing")])
def test_addresses_that_are_none(url, said):
    done = run("chat", "--url", url, "-q", "x")
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_the_key_of_a_file(folder):
    for text, said in [("# nothing\n\n", "expected a key"), ("sha256:" + 64 * "0", "hash")]:
        (folder / "bad").write_text(text)
        done = run("ps", "--url", "http://127.0.0.1:1", "--api-key-file", folder / "bad")
        assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("words", [
    ("--random-input-len", 24), ("--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", 16, "--prefix-repetition-suffix-len", 8,
                                 "--prefix-repetition-num-prefixes", 2, "--prefix-repetition-output-len", 4),
    ("--dataset-name", "sonnet", "--sonnet-input-len", 700, "--sonnet-prefix-len", 400, "--sonnet-output-len", 4)])
def test_bench_counts_with_the_servers_tokenizer(abacus, words):
    """The model's name is neither a folder nor in a cache. The prompts still have the requested lengths, counted by the server."""
    done = run("bench", "serve", "--url", abacus.url, "--num-prompts", 6, "--random-output-len", 4, "--model", "m", *words, env={"HF_HOME": "/nonexistent"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the server's /tokenize counts" in done.stdout
    lines = {line.split(":")[0]: float(line.split(":")[1]) for line in done.stdout.splitlines() if line.startswith("Total input tokens")}
    total = lines["Total input tokens"]
    # The prefix_repetition data set does not count tokens that the tokenizer adds to each prompt.
    exact = {6 * 24, 6 * 25} if "prefix_repetition" in words else {6 * 24}
    assert total in exact if "sonnet" not in words else 6 * 400 < total <= 6 * 700, done.stdout


def test_bench_says_what_it_cannot_ask_a_server_for(abacus, folder):
    (folder / "c.jsonl").write_text('{"prompt": "Tom"}\n')
    words = ("bench", "serve", "--url", abacus.url, "--model", "m", "--dataset-name", "custom", "--dataset-path", folder / "c.jsonl", "--custom-output-len", 3,
             "--num-prompts", 2)
    done = run(*words)
    assert done.returncode == 2 and "--skip-chat-template" in done.stderr, done.stderr
    for flags in (("--skip-chat-template",), ("--backend", "openai-chat")):
        done = run(*words, *flags)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dialects_know_the_options():
    assert (BIN / "vllm").exists()
    done = run("bench", "serve", "--insecure", "--base-url", "http://127.0.0.1:1", "--model", ABACUS, "--num-prompts", 1, program="vllm")
    assert done.returncode == 1 and "Cannot connect" in done.stdout, done.stderr
