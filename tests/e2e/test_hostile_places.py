"""Hostile model folders, surroundings and networks, by the ids of the cases in docs/security.md."""
import contextlib
import json
import os
import pathlib
import pickle
import shutil
import socket
import subprocess
import time

import raw_http
from survival import Survival

from serving import (
    ABACUS,
    DATA,
    limit_files,
    run,
    serving,
    serving_unheard,
)

LLAMA = DATA / "checkpoints" / "llama-bf16"
CANARY = "canary-7c1d-of-the-prompt"
KEY = "canary-92ab-of-the-key"


def copied(tmp_path, source=ABACUS):
    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def refused(folder, *flags, code=3, **kw):
    start = time.monotonic()
    result = run("serve", folder, "--host", "127.0.0.1", "--port", 0, *flags, timeout=60, **kw)
    assert result.returncode == code, (result.returncode, result.stderr[-2000:])
    assert time.monotonic() - start < 30
    return result.stderr


class Runs:
    """Creates a file if it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, ("touch '%s'" % self.mark,)


def test_v01_a_pickle_is_not_read(tmp_path):
    folder = copied(tmp_path)
    (folder / "model.safetensors").unlink()
    mark = tmp_path / "mark"
    for name in ("pytorch_model.bin", "model.pt", "consolidated.00.pth"):
        (folder / name).write_bytes(pickle.dumps(Runs(mark)))
    assert "safetensors" in refused(folder)
    assert not mark.exists()
    (folder / "model.safetensors").write_bytes(pickle.dumps(Runs(mark)))
    refused(folder)
    assert not mark.exists()


def test_v05_code_that_a_model_names_is_not_run(tmp_path, abacus):
    folder = copied(tmp_path)
    mark = tmp_path / "mark"
    code = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "nobody/else--evil.Model", "AutoTokenizer": ["evil.Tokenizer", None]}
    (folder / "evil.py").write_text("open(%r, 'w')\n" % str(mark))
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), "auto_map": code}))
    with serving(folder, "--trust-remote-code") as server:
        assert server.complete("Tom has 3 apples.") == abacus.complete("Tom has 3 apples.")
    assert not mark.exists()


def test_b06_v11_shards_outside_the_folder(tmp_path):
    folder = copied(tmp_path)
    shutil.move(folder / "model.safetensors", tmp_path / "outside.safetensors")
    for name in ("../outside.safetensors", str(tmp_path / "outside.safetensors"), "a/../../outside.safetensors", "", ".", "..", "a\0b",
                 "/dev/zero", "/proc/self/mem", "missing.safetensors", "%2e%2e/outside.safetensors", 5, None):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"model.norm.weight": name}}))
        refused(folder)


def test_b08_a_file_shrinks_while_it_is_served(tmp_path):
    folder = copied(tmp_path)
    with serving(folder) as server:
        survival = Survival(server)
        for path in folder.iterdir():
            os.truncate(path, 0)
        survival.check()


def test_c02_addresses():
    for host in ("256.1.1.1", "no-such-host.invalid", "192.0.2.1"):
        result = run("serve", LLAMA, "--host", host, "--port", 0, timeout=60)
        assert result.returncode == 2 and host in result.stderr, result.stderr
    for port in (-1, 65536, "http"):
        assert run("serve", LLAMA, "--port", port).returncode == 2


def test_c06_r04_a_bare_environment():
    """The program runs without a home, without a temporary folder, with a log on a full disk, in another working directory."""
    with open("/dev/full", "w") as out:
        def full(words, **kw):
            return subprocess.Popen(words, stdout=out, stderr=out, **kw)

        with serving_unheard(ABACUS, output=full, env={"TMPDIR": "/nowhere"}, cwd="/") as server:
            Survival(server).check()
            assert server.stop() == 0


def sockets_of(pid):
    """(address, port) of the listening sockets, in the format of /proc/net/tcp."""
    inodes = set()
    for link in pathlib.Path("/proc/%d/fd" % pid).iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link))
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/%d/net/%s" % (pid, table)).read_text().splitlines()[1:]:
            words = line.split()
            if "socket:[%s]" % words[9] in inodes and words[3] == "0A":
                address, port = words[1].split(":")
                found.append((address, int(port, 16)))
    udp = [line.split() for table in ("udp", "udp6") for line in pathlib.Path("/proc/%d/net/%s" % (pid, table)).read_text().splitlines()[1:]]
    assert not [words for words in udp if "socket:[%s]" % words[9] in inodes]
    unix = [line.split() for line in pathlib.Path("/proc/%d/net/unix" % pid).read_text().splitlines()[1:]]
    assert not [words for words in unix if "socket:[%s]" % words[6] in inodes]
    return found


def test_m05_v02_one_socket_listens():
    with serving(ABACUS) as server:
        server.complete("Tom")
        assert sockets_of(server.process.pid) == [("0100007F", server.port)]


def test_a07_v66_secrets_are_told_to_nobody(tmp_path):
    """Prompts, answers, keys and tokens from the environment appear in no log, metric or error."""
    with serving(ABACUS, "--api-key", KEY, env={"HF_TOKEN": "hf_canary", "VLLM_API_KEY": "canary-of-the-environment"}) as server:
        key = {"Authorization": "Bearer " + KEY}
        body = {"model": "m", "prompt": CANARY, "max_tokens": 4}
        assert server.request("POST", "/v1/completions", body, headers=key)[0] == 200
        outputs = []
        for path, sent, headers in (("/v1/completions", {**body, "temperature": -1}, key), ("/v1/completions", {**body, "n": CANARY}, {}),
                                    ("/v1/completions?api_key=" + KEY, body, {"Authorization": "Bearer %s-wrong" % CANARY}),
                                    ("/v1/completions", b'{"prompt": "%s' % CANARY.encode(), {"X-Api-Key": KEY})):
            status, _, text = server.request("POST", path, sent, headers=headers)
            assert status in (400, 401), text
            outputs.append(text.decode() if status == 401 else "")
        for path in ("/metrics", "/version", "/health", "/openapi.json", "/load"):
            outputs.append(server.get(path)[1].decode())
        assert server.stop() == 0
        outputs.append(server.log())
    for text in outputs:
        for secret in (CANARY, "hf_canary", "canary-of-the-environment"):
            assert secret not in text
        assert KEY not in text


def test_a01_v60_paths_around_the_key():
    """The key is checked for the same path that is served, whatever the Host header and the path's spelling."""
    with serving(ABACUS, "--api-key", KEY) as server:
        survival = Survival(server, {"Authorization": "Bearer " + KEY})
        body = json.dumps({"model": "m", "prompt": "Tom", "max_tokens": 1})
        for target in ("/v1/completions", "//v1/completions", "/./v1/completions", "/V1/completions", "/v1//completions", "/v1/%63ompletions",
                       "/%76%31/completions", "/v1/completions/", "/v1/completions;a=b", "/v1/completions?a=/health", "/v1/completions#/health",
                       "/health/../v1/completions", "/health/%2e%2e/v1/completions", "/health?/v1/completions", "http://x/v1/completions",
                       "http://x/health?/v1/completions", "/v1/completions%00", "/v1/completions.", "/v1\\completions", "/health;/../v1/completions"):
            for host in ("x", "x/health?", "a@b", "x:80/health", "", "x#", "[::1"):
                for method in ("POST", "OPTIONS", "HEAD"):
                    data = ("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                            % (method, target, host, len(body), body))
                    answer = raw_http.send_and_read(server, data.encode())
                    assert b"text_completion" not in answer, (method, target, host)
        survival.check()


def test_v61_keys_that_are_nearly_right():
    with serving(LLAMA, "--api-key", KEY, "second") as server:
        for given in ("", KEY[:-1], KEY + "x", KEY.upper(), KEY + KEY, KEY + " ", " " + KEY + "\t,", "\0", "second ", "econd", "None", "null", "*"):
            for words in ("Bearer " + given, given, "Basic " + given, "Bearer" + given, "Bearer  " + given):
                if words.strip() in ("Bearer " + KEY, "Bearer second"):
                    continue
                data = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: %s\r\n\r\n" % words.encode()
                assert raw_http.status_of(raw_http.send_and_read(server, data)) in (400, 401), words
        for good in (KEY, "second"):
            assert server.get("/v1/models", headers={"Authorization": "Bearer " + good})[0] == 200
        # Rejected before the body is read.
        with raw_http.connect(server) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 401 ")


def test_a08_origins():
    """Pages of other origins may read answers only if the origin is named, and never with credentials."""
    def headers(server, origin):
        return server.request("GET", "/v1/models", headers={"Origin": origin})[1]

    with serving(LLAMA) as server:
        for origin in ("http://evil.example", "null", "http://127.0.0.1"):
            assert not [name for name in headers(server, origin) if name.startswith("access-control")]
    with serving(LLAMA, "--allowed-origins", '["http://a.example"]') as server:
        assert headers(server, "http://a.example")["access-control-allow-origin"] == "http://a.example"
        for origin in ("http://a.example.evil", "http://evil/http://a.example", "https://a.example", "http://A.example.", "null"):
            assert "access-control-allow-origin" not in headers(server, origin)


def test_r01_more_connections_than_files():
    """If file descriptors run out, new connections wait while open ones are served. New connections are served once others have closed."""
    with serving(ABACUS, preexec_fn=lambda: limit_files(256, 256)) as server:
        survival = Survival(server)
        kept = raw_http.connect(server)
        assert raw_http.get(kept, "/health") == 200
        with contextlib.ExitStack() as crowd:
            for _ in range(600):
                client = crowd.enter_context(socket.socket())
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.connect(("127.0.0.1", server.port))
            assert raw_http.get(kept, "/health") == 200
        kept.close()
        survival.check()
        assert len(server.log()) < 200_000, "a line for each refused connection"
