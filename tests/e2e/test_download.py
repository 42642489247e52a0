"""Models from a hub: downloads, recovery after faults, messages, and a cache that huggingface_hub can share."""
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from loopback_hub import Repository, serving_hub

from serving import ABACUS, Server, command, free_port, run, wait_until

WEIGHTS = "model.safetensors"


def folder_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def small_model(size=300_000, **more):
    data = random.Random(size).randbytes(size)
    return {"config.json": b"{}", "tokenizer.json": b"{ }", WEIGHTS: data, "README.md": b"read me", "pytorch_model.bin": b"x" * 1000, **more}


class Place:
    """A model cache, and environment variables that refer to it and to the hub."""

    def __init__(self, hub, folder):
        self.hub, self.home, self.cache = hub, folder, folder / "hub"
        self.env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder), "HF_HUB_OFFLINE": "0", "HF_HUB_DOWNLOAD_TIMEOUT": "2", "NO_PROXY": "127.0.0.1,localhost"}

    def pull(self, name="a/b", *words, **env):
        return run("pull", name, *words, env={**self.env, **env})

    def pulled(self, name="a/b", *words, **env):
        """The folder that a successful pull prints."""
        result = self.pull(name, *words, **env)
        assert result.returncode == 0, result.stderr
        return pathlib.Path(result.stdout.splitlines()[-1])

    def refused(self, *says, name="a/b", words=(), code=5, **env):
        result = self.pull(name, *words, **env)
        assert result.returncode == code, (result.returncode, result.stderr)
        for word in says:
            assert word in result.stderr, (word, result.stderr)
        return result

    def repository(self, name="a/b"):
        return self.cache / ("models--" + name.replace("/", "--"))

    def blobs(self, name="a/b"):
        return {path.name for path in (self.repository(name) / "blobs").iterdir()}


@pytest.fixture
def hub():
    with serving_hub({"a/b": Repository(small_model())}) as hub:
        yield hub


@pytest.fixture
def place(hub, tmp_path):
    return Place(hub, tmp_path)


def same(folder, files, names=("config.json", "tokenizer.json", WEIGHTS)):
    return all((folder / name).read_bytes() == files[name] for name in names)


def test_what_is_fetched_and_how_it_lies(hub, place):
    repository = hub.repositories["a/b"]
    folder = place.pulled()
    assert folder == place.repository() / "snapshots" / repository.commit
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", WEIGHTS, "tokenizer.json"], "only what is read"
    assert same(folder, repository.files)
    for path in folder.iterdir():
        assert os.readlink(path) == "../../blobs/" + repository.etag(path.name)
    assert (place.repository() / "refs/main").read_text() == repository.commit
    assert {path.name for path in (place.cache / ".locks/models--a--b").iterdir()} == {repository.etag(n) + ".lock" for n in os.listdir(folder)}
    before = len(hub.requests)
    place.pulled()
    assert [r[2] for r in hub.requests[before:]] == ["/api/models/a/b/revision/main"], "only the commit is asked for again"
    hub.repositories["a/b"] = Repository({**repository.files, "config.json": b"{  }"})
    new = place.pulled("%s/a/b/tree/main" % hub.url)
    assert new != folder and same(new, hub.repositories["a/b"].files)
    assert len(hub.taken("store")) == 1, "weights that are the same are not fetched again"
    assert run("list", env=place.env).stdout.count(repository.commit[:12]) == 1


@contextlib.contextmanager
def served_from_the_hub(tmp_path, env, *words):
    """A server that reported its download before it was ready."""
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command("serve", *words, "--host", "127.0.0.1", "--port", free_port(), "--max-model-len", "512"),
                                   stdout=log, stderr=log, env={**os.environ, **env})
    try:
        server = Server(process, int(process.args[process.args.index("--port") + 1]), tmp_path / "log")
        seen = []

        def ready():
            assert process.poll() is None, server.log()
            try:
                status, text = server.get("/health")
            except OSError:
                return False
            seen.append(json.loads(text))
            return status == 200

        wait_until(ready, server.log)
        told = [health for health in seen if "download_bytes" in health]
        assert told and all(h["status"] == "loading" and h["downloaded_bytes"] <= h["download_bytes"] for h in told), seen
        yield server
    finally:
        process.terminate()
        process.wait()


def test_v14_serve_from_nothing_then_without_the_hub(tmp_path):
    files = folder_files(ABACUS)
    with serving_hub({"acme/abacus": Repository(files)}) as hub:
        place = Place(hub, tmp_path)
        hub.cut_every, hub.bytes_per_second = 2 << 20, 8 << 20
        with served_from_the_hub(tmp_path, {**place.env, "HF_TOKEN": "good"}, "acme/abacus") as server:
            assert server.complete("Tom has 3 apples", model="acme/abacus")["text"]
        assert hub.cuts > 0
        tokens = {r[1]: r[4] for r in hub.requests}
        assert tokens == {"hub": "Bearer good", "store": None}, "the token is the hub's alone"
        before = len(hub.requests)
        report = run("inspect", "acme/abacus", env=place.env)
        assert report.returncode == 0 and len(hub.requests) == before, report.stderr
        assert run("inspect", "acme/abacus", env={**place.env, "HF_HUB_OFFLINE": "1"}).returncode == 0


def test_a_draft_model_is_fetched_as_the_model_is(tmp_path):
    config = json.dumps({"method": "draft_model", "model": "acme/draft", "num_speculative_tokens": 2})
    with serving_hub({"acme/draft": Repository(folder_files(ABACUS))}) as hub:
        place = Place(hub, tmp_path)
        # Options that a draft model does not support are rejected before anything is downloaded.
        ended = run("serve", ABACUS, "--port", free_port(), "-tp", 2, "--distributed-executor-backend", "mpi",
                    "--speculative-config", config, env=place.env)
        assert ended.returncode != 0 and "ranks in separate processes" in ended.stderr and not hub.requests, ended.stderr
        # If the name does not reveal the method, the options are rejected before the weights are
        # downloaded.
        unnamed = json.dumps({"model": "acme/draft", "num_speculative_tokens": 2})
        ended = run("serve", ABACUS, "--port", free_port(), "-tp", 2, "--distributed-executor-backend", "mpi",
                    "--speculative-config", unnamed, env=place.env)
        assert ended.returncode != 0 and "ranks in separate processes" in ended.stderr and not hub.taken("store"), ended.stderr
        hub.bytes_per_second = 8 << 20
        with served_from_the_hub(tmp_path, place.env, ABACUS, "--served-model-name", "m", "--speculative-config", config) as server:
            assert server.complete("Tom has 3 apples")["text"]
        assert hub.taken("store")


def test_shards_of_an_index_and_a_tokenizer_alone(tmp_path):
    index = {"weight_map": {"x": "model-00001-of-00002.safetensors", "y": "model-00002-of-00002.safetensors"}}
    files = {"config.json": b"{}", "tokenizer.json": b"{ }", "tokenizer_config.json": b"{  }", "model.safetensors.index.json": json.dumps(index).encode(),
             **{name: random.randbytes(100_000) for name in index["weight_map"].values()}, "consolidated.safetensors": b"no"}
    with serving_hub({"a/b": Repository(files)}) as hub:
        place = Place(hub, tmp_path)
        assert run("tokenize", "--model", "a/b", env=place.env, input="").returncode != 5
        assert not hub.taken("store"), "a tokenizer needs no weights"
        folder = place.pulled()
        assert set(os.listdir(folder)) == set(files) - {"consolidated.safetensors"}
        (folder / "model-00002-of-00002.safetensors").unlink()
        result = run("inspect", "a/b", env={**place.env, "HF_HUB_OFFLINE": "1"})
        assert result.returncode == 5 and "model-00002-of-00002.safetensors" in result.stderr and "HF_HUB_OFFLINE" in result.stderr


def test_continues_after_a_kill(tmp_path):
    files = small_model(24_000_000)
    with serving_hub({"a/b": Repository(files)}) as hub:
        place = Place(hub, tmp_path)
        hub.bytes_per_second = 4_000_000
        incomplete = place.repository() / "blobs" / (hub.repositories["a/b"].etag(WEIGHTS) + ".incomplete")
        size = 0
        for _ in range(3):
            process = subprocess.Popen(command("pull", "a/b"), env={**os.environ, **place.env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda before=size: incomplete.exists() and incomplete.stat().st_size > before + 200_000, "no progress")
            process.send_signal(signal.SIGKILL)
            process.wait()
            size = incomplete.stat().st_size
            assert incomplete.read_bytes() == files[WEIGHTS][:size], "a beginning of the file, at any time"
        assert not (place.repository() / "refs").exists(), "nothing is taken for whole"
        hub.bytes_per_second = 0
        asked = len(hub.taken("store"))
        assert same(place.pulled(), files)
        assert hub.taken("store")[asked][3].startswith("bytes=%d-" % size), "what came is not fetched again"
        assert not [name for name in place.blobs() if "incomplete" in name]


def test_parallel_ranges_where_one_connection_is_slow(tmp_path):
    files = small_model(48 << 20)
    with serving_hub({"a/b": Repository(files)}) as hub:
        place = Place(hub, tmp_path)
        hub.bytes_per_second, hub.cut_every = 12 << 20, 9 << 20
        assert same(place.pulled(), files)
        assert len({r[3] for r in hub.taken("store")}) > 4, "several ranges"


@pytest.mark.parametrize("fault, count", [("expired", 1), ("corrupt", 1), ("no_ranges", True)])
def test_b10_faults_that_are_mended(hub, place, fault, count):
    setattr(hub, fault, count)
    hub.cut_every, hub.most_cuts = 100_000, 3 if fault != "no_ranges" else 1
    assert same(place.pulled(), hub.repositories["a/b"].files)
    assert hub.cuts


def test_a_busy_hub_is_asked_again(hub, place):
    hub.refusals = [(429, {"Retry-After": "0"}), (503, {"Retry-After": "0"}), (500, {"Retry-After": "0"})]
    result = place.pull()
    assert result.returncode == 0, result.stderr
    assert "429" in result.stderr and "503" in result.stderr


@pytest.mark.parametrize("fault, count, says", [
    ("corrupt", 9, "digest"), ("other_size", 5, "of 300000"), ("html", True, "text/html"), ("not_a_hub", True, "HF_ENDPOINT"),
    ("redirect_to", "ftp://127.0.0.1/x", "ftp"), ("etags", {WEIGHTS: "../../x"}, "ETag")])
def test_b10_v14_faults_that_end_it(hub, place, fault, count, says):
    setattr(hub, fault, count)
    place.refused(says)
    assert not [name for name in (place.blobs() if (place.repository() / "blobs").exists() else []) if "incomplete" not in name and len(name) == 64]
    assert not (place.repository() / "refs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["hub", "store"])
def test_b10_a_hub_that_trickles_holds_nothing_up(hub, place, where):
    """Ten bytes per second are below the minimum rate: the pull fails after five attempts, each of HF_HUB_DOWNLOAD_TIMEOUT."""
    hub.trickle = where
    start = time.monotonic()
    place.refused("too slow", "1024 bytes/sec", HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert time.monotonic() - start < 60
    hub.trickle = None
    assert same(place.pulled(), hub.repositories["a/b"].files)


def test_refusals_say_what_to_do(hub, place, tmp_path):
    hub.repositories["a/gated"] = Repository(small_model(), gated=True)
    page = hub.url + "/a/gated"
    place.refused("gated", "HF_TOKEN is not set", page, name="a/gated")
    place.refused("gated", "has no access", page, name="a/gated", HF_TOKEN="bad")
    (place.home / "token").write_text("good\n")
    place.pulled("a/gated")
    place.refused("x/B", "similar names there: a/b", name="x/B")
    place.refused("a/gatde", "similar names there: a/gated\n", name="a/gatde")
    place.refused("no revision 'v9'", words=("--revision", "v9"), code=3)
    hub.repositories["a/pickle"] = Repository({"config.json": b"{}", "pytorch_model.bin": b"x"})
    place.refused("pytorch_model.bin", "safetensors", name="a/pickle", code=3)
    hub.repositories["a/adapter"] = Repository({"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"})
    place.refused("LoRA adapter", "merge_and_unload", name="a/adapter", code=3)
    place.refused("HF_HUB_OFFLINE", name="a/other", HF_HUB_OFFLINE="1")
    place.refused("cannot be reached", name="a/other", HF_ENDPOINT="http://127.0.0.1:%d" % free_port())
    place.refused("there is no folder models/abacos here, and model models/abacos is not at", name="models/abacos")
    place.refused("HF_ENDPOINT", name="a/other", HF_ENDPOINT="hub", code=2)
    place.refused("HF_TOKEN", name="a/other", HF_TOKEN="two words", code=2)


def test_revisions(hub, place):
    """A branch, a commit, and a pull request, whose name contains slashes."""
    repository = hub.repositories["a/b"]
    repository.revisions |= {"v1.0", "refs/pr/7"}
    folders = {place.pulled("a/b", "--revision", revision) for revision in ("v1.0", "refs/pr/7", repository.commit)}
    assert folders == {place.repository() / "snapshots" / repository.commit}
    assert (place.repository() / "refs/refs/pr/7").read_text() == (place.repository() / "refs/v1.0").read_text() == repository.commit
    report = run("inspect", "a/b", "--revision", "refs/pr/7", "--json", env={**place.env, "HF_HUB_OFFLINE": "1"})
    assert str(folders.pop()) in report.stdout + report.stderr


def test_room_is_looked_for_before_a_file_is_begun(hub, place):
    hub.repositories["a/large"] = Repository(small_model())
    hub.linked_sizes = {WEIGHTS: 1 << 50}
    place.refused("needs", "more bytes", "--download-dir", name="a/large")
    assert not hub.taken("store")


def test_progress_is_a_bar_on_a_terminal(hub, place):
    hub.bytes_per_second = 200_000
    main, terminal = os.openpty()
    process = subprocess.Popen(command("pull", "a/b"), env={**os.environ, **place.env}, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # no process has the file open
        while part := os.read(main, 4096):
            text += part
    os.close(main)
    assert process.wait() == 0, text
    assert text.count(b"\rdownloading [#") > 2 and re.search(rb"downloading \[#{8,30}\] 100 %", text), text
    hub.bytes_per_second = 0
    hub.repositories["a/c"] = Repository(small_model(400_000))
    result = place.pull("a/c")
    assert "\r" not in result.stderr and "downloading: " in result.stderr, result.stderr


def test_a_cache_that_cannot_be_written(hub, place):
    place.cache.write_text("a file")
    place.refused(str(place.cache), "--download-dir")
    assert same(place.pulled("a/b", "--download-dir", place.home / "other"), hub.repositories["a/b"].files)


def test_a_full_disk_keeps_what_came(hub, place):
    limit = 150_000
    words = ["bash", "-c", "ulimit -f %d; trap '' XFSZ; exec \"$@\"" % (limit // 1024), "-", *command("pull", "a/b")]
    result = subprocess.run(words, env={**os.environ, **place.env}, capture_output=True, text=True)
    assert result.returncode == 4 and "cannot write" in result.stderr, result.stderr
    incomplete = place.repository() / "blobs" / (hub.repositories["a/b"].etag(WEIGHTS) + ".incomplete")
    assert incomplete.read_bytes() == hub.repositories["a/b"].files[WEIGHTS][:incomplete.stat().st_size]
    assert same(place.pulled(), hub.repositories["a/b"].files)


def marks_of(place):
    return sorted((place.repository() / "blobs").glob("*.unflushed"))


def as_if_the_power_failed(place, damage):
    """Simulates a power failure: marks the machine as restarted and damages files that are not yet flushed. Returns their number."""
    marks = marks_of(place)
    for mark in marks:
        mark.write_text("0c5e46c2-8dc6-4b71-9b5f-3a4a2c1e7f10")
        if damage and (blob := mark.with_suffix("")).exists():
            size = blob.stat().st_size
            with open(blob, "r+b") as file:
                file.truncate(size // 2)
                file.truncate(size)  # fills the file with zeros
    return len(marks)


def test_b10_what_the_disk_may_have_lost_is_checked(hub, place):
    """A pull does not wait until its last file is flushed to disk. The next start waits for this, or computes the digest if the machine was
    restarted."""
    files = hub.repositories["a/b"].files
    folder = place.pulled()
    assert [mark.stem for mark in marks_of(place)] == [hub.repositories["a/b"].etag(WEIGHTS)], "of the last file alone"
    offline = {**place.env, "HF_HUB_OFFLINE": "1"}
    assert run("pull", "a/b", env=offline).returncode == 0 and not marks_of(place)

    (folder / WEIGHTS).resolve().unlink()
    place.pulled()
    assert as_if_the_power_failed(place, damage=False) == 1
    asked = len(hub.taken("store"))
    result = place.pull()
    assert result.returncode == 0 and "checking 300000 bytes" in result.stderr and not marks_of(place), result.stderr
    assert len(hub.taken("store")) == asked, "what is whole is not fetched again"
    assert "checking" not in place.pull().stderr

    for name in ("a/b", folder):
        (folder / WEIGHTS).resolve().unlink()
        place.pulled()
        assert as_if_the_power_failed(place, damage=True) == 1
        result = run("complete", name, "-q", "x", env=offline)
        assert result.returncode not in (0, -signal.SIGBUS) and "is damaged and is removed" in result.stderr, result.stderr
        asked = len(hub.taken("store"))
        assert same(place.pulled(), files) and len(hub.taken("store")) == asked + 1, "what was lost is fetched again"


def test_b10_marks_in_a_cache_that_cannot_be_written(hub, place):
    """Complete files are used, but their digests are checked at each start."""
    folder = place.pulled()
    assert as_if_the_power_failed(place, damage=False) == 1
    mount = "mount --bind %s %s && mount -o remount,ro,bind %s && exec \"$@\"" % ((place.cache,) * 3)
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "-", *command("pull", "a/b")]
    for _ in range(2):
        result = subprocess.run(words, env={**os.environ, **place.env, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
        assert result.returncode == 0 and result.stdout.strip() == str(folder), result.stderr
        assert "checking 300000 bytes" in result.stderr and "checked again at each start" in result.stderr, result.stderr
    assert len(marks_of(place)) == 1


def test_without_links(hub, place):
    folder = place.pulled(HF_HUB_DISABLE_SYMLINKS="1")
    assert same(folder, hub.repositories["a/b"].files) and not (folder / WEIGHTS).is_symlink()


def test_two_at_once_fetch_once(hub, place):
    hub.bytes_per_second = 500_000
    results = []
    threads = [threading.Thread(target=lambda: results.append(place.pull())) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [result.returncode for result in results] == [0, 0, 0], results
    assert len(hub.taken("store")) == 1


def test_list_and_rm(hub, place):
    old = hub.repositories["a/b"]
    place.pulled()
    hub.repositories["a/b"] = Repository({**old.files, WEIGHTS: b"new" * 1000})
    new = place.pulled()
    models = json.loads(run("list", "--json", env=place.env).stdout)
    assert [(m["id"], sorted((s["references"], s["complete"]) for s in m["snapshots"])) for m in models] == [("a/b", [([], True), (["main"], True)])]
    assert run("rm", "a/b", "--yes", "--revision", old.commit, env=place.env).returncode == 0
    assert same(new, hub.repositories["a/b"].files) and old.etag(WEIGHTS) not in place.blobs()
    lock = place.cache / ".locks/models--a--b" / (old.etag("config.json") + ".lock")
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        busy = run("rm", "a/b", "--yes", env=place.env)
        assert busy.returncode == 5 and "another program" in busy.stderr
    assert run("rm", "a/b", "--yes", env=place.env).returncode == 0
    assert not place.repository().exists() and json.loads(run("list", "--json", env=place.env).stdout) == []
    assert run("rm", "a/b", env=place.env).returncode == 3


def hugging_face(place, code):
    """Runs Python code with huggingface_hub; returns what it prints."""
    result = subprocess.run([sys.executable, "-c", "from huggingface_hub import *\n" + code], capture_output=True, text=True,
                            env={**os.environ, **place.env, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"})
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_huggingface_hub_reads_ours_and_we_read_its(hub, place, tmp_path):
    files = hub.repositories["a/b"].files
    folder = place.pulled()
    asked = len(hub.taken("store"))
    found = json.loads(hugging_face(place, """
import json
info = scan_cache_dir()
repository, = info.repos
print(json.dumps([snapshot_download('a/b', allow_patterns=['*.json', '*.safetensors']), try_to_load_from_cache('a/b', 'model.safetensors'),
                  hf_hub_download('a/b', 'model.safetensors'), hf_hub_download('a/b', 'config.json', local_files_only=True),
                  repository.repo_id, len(info.warnings), repository.size_on_disk]))"""))
    assert found == [str(folder), str(folder / WEIGHTS), str(folder / WEIGHTS), str(folder / "config.json"),
                     "a/b", 0, sum(len(files[name]) for name in os.listdir(folder))]
    assert len(hub.taken("store")) == asked, "nothing was fetched twice"

    other = Place(hub, tmp_path / "other")
    theirs = pathlib.Path(hugging_face(other, "print(snapshot_download('a/b'))"))
    asked = len(hub.requests)
    report = run("inspect", "a/b", "--json", env={**other.env, "HF_HUB_OFFLINE": "1"})
    assert str(theirs) in report.stdout + report.stderr and len(hub.requests) == asked
    digest = hashlib.sha256(files[WEIGHTS]).hexdigest()
    assert other.pulled() == theirs and len([name for name in other.blobs() if name.startswith(digest)]) == 1


def test_chat_and_bench_download_what_is_missing(tmp_path):
    with serving_hub({"acme/abacus": Repository(folder_files(ABACUS))}) as hub:
        for i, (words, says) in enumerate([
                (["chat", "acme/abacus", "--quick", "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"], "#### 7"),
                (["bench", "throughput", "--model", "acme/abacus", "--input-len", 8, "--output-len", 4, "--num-prompts", 1], "Throughput")]):
            place = Place(hub, tmp_path / str(i))
            result = run(*words, env=place.env)
            assert result.returncode == 0 and says in result.stdout, result.stderr
            assert same(place.repository("acme/abacus") / "snapshots" / hub.repositories["acme/abacus"].commit, hub.repositories["acme/abacus"].files)
