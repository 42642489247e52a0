"""TLS and unix sockets as users see them: openssl makes the certificates, curl and openssl s_client connect."""
import contextlib
import os
import pathlib
import stat
import subprocess
import tempfile

import pytest

from serving import ABACUS, PATIENCE_S, command, end, run, wait_until, wait_until_ready

QUESTION = '{"model": "m", "prompt": "Tom has 3 apples.", "max_tokens": 8, "temperature": 0}'


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield pathlib.Path(path)


def make_certificate(folder, name, *words):
    """Makes a self-signed certificate for 127.0.0.1; returns the files of certificate and key."""
    certificate, key = folder / (name + ".crt"), folder / (name + ".key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", *words], check=True, capture_output=True)
    return certificate, key


@contextlib.contextmanager
def starting(*flags):
    """Starts a server of the bundled model; yields the process and its log file."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(command("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, "--served-model-name", "m",
                                           "--max-model-len", 1024, *flags),
                                   stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield process, log.name
        finally:
            end(process)


def curl(*words):
    return subprocess.run(["curl", "--silent", "--show-error", "--max-time", str(PATIENCE_S), *map(str, words)],
                          capture_output=True, text=True)


def s_client(port, *words):
    return subprocess.run(["openssl", "s_client", "-connect", "127.0.0.1:%d" % port, *words], input="", capture_output=True,
                          text=True, timeout=PATIENCE_S)


def test_a04_a05_tls(folder):
    """curl trusts the certificate and gets answers, including streams. Old TLS versions are rejected. A new certificate is used without a
    restart while a stream continues; an invalid certificate is ignored."""
    certificate, key = make_certificate(folder, "first")
    second_certificate, second_key = make_certificate(folder, "second")
    with starting("--ssl-certfile", certificate, "--ssl-keyfile", key, "--enable-ssl-refresh") as (process, log):
        port = wait_until_ready(process, log)
        url = "https://127.0.0.1:%d" % port
        assert "serving m at " + url in pathlib.Path(log).read_text()
        answer = curl("--cacert", certificate, "--json", QUESTION, url + "/v1/completions")
        assert '"choices"' in answer.stdout, answer
        assert curl(url + "/health").returncode == 60  # rejected without the certificate
        assert "uses HTTPS" in curl("http://127.0.0.1:%d/health" % port).stdout

        for old in ("-tls1", "-tls1_1"):
            assert s_client(port, old, "-cipher", "DEFAULT@SECLEVEL=0").returncode != 0
        assert "TLSv1.3" in s_client(port, "-tls1_3").stdout
        agreed = s_client(port, "-tls1_2", "-alpn", "h2,http/1.1").stdout
        assert "ALPN protocol: http/1.1" in agreed and "Secure Renegotiation IS supported" in agreed and "ECDHE" in agreed
        assert s_client(port, "-tls1_2", "-cipher", "AES128-SHA").returncode != 0

        long = QUESTION.replace('"max_tokens": 8', '"max_tokens": 900, "ignore_eos": true, "stream": true')
        stream = subprocess.Popen(["curl", "--silent", "--cacert", certificate, "--json", long, url + "/v1/completions"],
                                  stdout=subprocess.PIPE, text=True)
        assert stream.stdout.readline().startswith("data: ")
        certificate.write_text("no certificate")
        wait_until(lambda: "reloading the certificate failed" in pathlib.Path(log).read_text(), "no word of a bad certificate")
        assert "CN = first" in s_client(port).stdout
        os.replace(second_certificate, certificate)
        os.replace(second_key, key)
        wait_until(lambda: "CN = second" in s_client(port).stdout, "the new certificate is not served", 30)
        assert "data: [DONE]" in stream.communicate(timeout=PATIENCE_S)[0]
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_a06_certificates_of_clients(folder):
    certificate, key = make_certificate(folder, "server")
    known, known_key = make_certificate(folder, "known")
    stranger, stranger_key = make_certificate(folder, "stranger")
    expired = folder / "expired.crt"
    subprocess.run(["openssl", "x509", "-in", stranger, "-signkey", stranger_key, "-days", "-1", "-out", expired], check=True, capture_output=True)
    trusted = folder / "trusted.crt"
    trusted.write_text(known.read_text() + expired.read_text())
    with starting("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-ca-certs", trusted, "--ssl-cert-reqs", 2) as (process, log):
        url = "https://127.0.0.1:%d/health" % wait_until_ready(process, log)
        assert curl("--cacert", certificate, "--cert", known, "--key", known_key, "--fail", url).returncode == 0
        assert curl("--cacert", certificate, "--cert", stranger, "--key", stranger_key, url).returncode != 0
        assert curl("--cacert", certificate, "--cert", expired, "--key", stranger_key, url).returncode != 0
        # In TLS 1.3 a client may see the connection end before it sees the reason.
        said = s_client(int(url.split(":")[2].split("/")[0]), "-tls1_2", "-cert", str(expired), "-key", str(stranger_key)).stderr
        assert "alert certificate expired" in said, said
        assert curl("--cacert", certificate, url).returncode != 0


def test_c04_bad_certificates_and_keys(folder):
    certificate, key = make_certificate(folder, "one")
    other = make_certificate(folder, "other")[1]
    for flags, words in [(("--ssl-certfile", certificate, "--ssl-keyfile", other), ["--ssl-keyfile", "does not belong"]),
                         (("--ssl-certfile", key), ["--ssl-certfile", "expected a certificate"]),
                         (("--ssl-certfile", folder / "none", "--ssl-keyfile", key), ["--ssl-certfile", "No such file"]),
                         (("--ssl-keyfile", key), ["--ssl-certfile"]),
                         (("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-cert-reqs", 2), ["--ssl-ca-certs"])]:
        result = run("serve", ABACUS, "--host", "127.0.0.1", "--port", 0, *flags)
        assert result.returncode == 2, result
        for word in words:
            assert word in result.stderr.splitlines()[-1], result.stderr


def test_unix_socket(folder):
    """The socket's file exists while the server runs, and replaces the file of a killed server."""
    path = folder / "s.sock"

    def reachable():
        return curl("--unix-socket", path, "--fail", "http://x/health").returncode == 0

    with starting("--uds", path) as (process, log):
        wait_until(reachable, lambda: pathlib.Path(log).read_text())
        assert "serving m at unix:%s" % path in pathlib.Path(log).read_text()
        assert stat.S_ISSOCK(path.stat().st_mode)
        answer = curl("--unix-socket", path, "--json", QUESTION, "http://x/v1/completions").stdout
        assert '"choices"' in answer
        taken = run("serve", ABACUS, "--uds", path)
        assert taken.returncode == 6 and str(path) in taken.stderr
        process.kill()
        process.wait()
    assert path.exists()
    with starting("--uds", path) as (process, log):
        wait_until(reachable, lambda: pathlib.Path(log).read_text())
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert not path.exists()
    path.write_text("a file")
    result = run("serve", ABACUS, "--uds", path)
    assert result.returncode == 2 and "--uds" in result.stderr and path.read_text() == "a file"
