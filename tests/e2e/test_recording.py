"""`sluice serve --record`, `sluice replay`: the same steps and bits, and the other uses of a recording."""
import concurrent.futures
import json
import shutil

import pytest

from serving import ABACUS, run, serving, wait_until

# Few blocks, so that sequences are preempted; small steps, so that prompts are divided into chunks.
SMALL = ("--num-gpu-blocks-override", "10", "--max-model-len", "128", "--max-num-batched-tokens", "64", "--max-num-seqs", "8")
SECRET = "sk-the-key-of-a-client"


def load(server, count=24):
    """Requests of many kinds at the same time; some clients disconnect early."""
    def one(i):
        body = {"prompt": "Question: Tom has %d apples and buys %d more. How many? Answer:" % (i % 5, i), "max_tokens": 8 + 5 * (i % 7),
                "temperature": 0 if i % 3 == 0 else 0.9, "n": 2 if i % 3 == 1 else 1}
        if i % 4 == 0:
            body["seed"] = i
        if i % 5 == 0:
            body["stop"] = ["\n"]
        if i % 6 == 5:
            body["cache_salt"] = "a salt that is a secret"
        try:
            return server.request("POST", "/v1/completions", body, headers={"Authorization": "Bearer " + SECRET},
                                  timeout=0.2 if i % 11 == 10 else 300)[0]
        except OSError:
            return 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(one, range(count)))
    assert statuses.count(200) >= count - count // 8, statuses


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording")
    with serving(ABACUS, "--record", folder, "--api-key", SECRET, *SMALL) as server:
        load(server)
        # Eight sequences of five blocks do not fit together at any speed. A repeated prompt is found in the prefix
        # cache.
        asked = {"prompt": "Question: Tom has 3 apples and buys 4 more. How many has he? Answer:", "temperature": 0}
        for more in ({"n": 8, "max_tokens": 60, "ignore_eos": True, "temperature": 1}, {"max_tokens": 4}, {"max_tokens": 4}):
            assert server.request("POST", "/v1/completions", {**asked, **more}, headers={"Authorization": "Bearer " + SECRET})[0] == 200
    return folder


def replay(folder, *words):
    """(exit code, result of the only engine)."""
    done = run("replay", folder, "--json", *words)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)[0]


def test_replays_equal(recorded):
    code, result = replay(recorded)
    assert code == 0, result
    assert result["different_answers"] == 0 and result["answers"] >= 24 and result["tokens"] > 200
    assert result["preemptions"] > 0 and result["prefix_hits"] > 0
    # Another number of threads computes the same bits.
    assert replay(recorded, "--threads", "1") == (0, result)
    text = run("replay", recorded).stdout
    assert text.rstrip().endswith("equal")


@pytest.mark.parametrize("flags", [("--data-parallel-size", "2"), ("-tp", "2"), ("-pp", "2"), ("--scheduling-policy", "priority"),
                                   ("--speculative-config", '{"method":"ngram","num_speculative_tokens":3}'),
                                   ("--enable-prefix-caching=false",)])
def test_kinds_of_engines_replay_equal(tmp_path, flags):
    with serving(ABACUS, "--record", tmp_path, *flags) as server:
        load(server, 12)
    done = run("replay", tmp_path, "--json")
    engines = json.loads(done.stdout)
    assert done.returncode == 0 and len(engines) == (2 if "--data-parallel-size" in flags else 1), done.stdout
    assert sum(engine["answers"] for engine in engines) >= 12


def test_offloaded_blocks_leave_answers(tmp_path):
    with serving(ABACUS, "--record", tmp_path, "--kv-offloading-size", "0.1") as server:
        load(server, 8)
    done = run("replay", tmp_path)
    assert done.returncode == 1 and "offloads" in done.stdout
    assert replay(tmp_path, "--answers-only")[0] == 0


def test_no_key_is_recorded(recorded):
    for file in recorded.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
        content = file.read_bytes()
        assert SECRET.encode() not in content and b"uthorization" not in content
        # The salt occurs only in the recorded bodies, as the client wrote it, and in no event of the engine.
        assert content.count(b"a salt that is a secret") <= 4


def test_until(recorded):
    code, result = replay(recorded, "--until", "5")
    assert code == 0 and result["steps"] == 5
    assert "last plan" in run("replay", recorded, "--until", "5").stdout


def test_differences_are_named(recorded, tmp_path):
    """Another RoPE base simulates a fault. The output names the first difference, and one request is enough to reproduce it."""
    code, result = replay(recorded, "--rope-theta", "777", "--minimize")
    assert code == 1
    first = result["first_difference"]
    assert first["expected"] != first["found"] and first["request"].startswith("cmpl-")
    assert result["smallest"] == [first["request"]]
    assert "different  request cmpl-" in run("replay", recorded, "--rope-theta", "777").stdout
    model = tmp_path / "other"
    shutil.copytree(ABACUS, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "comment": 1}))
    done = run("replay", recorded, "--model", model)
    assert "warning: the weights differ" in done.stderr and done.returncode == 0


def test_damage_is_told(recorded, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(recorded, folder)
    file = next(folder.iterdir())
    file.write_bytes(file.read_bytes()[:-1])
    done = run("replay", folder)
    assert done.returncode == 1 and "cut off at byte" in done.stderr
    assert "dropped here" in done.stdout or "an event is damaged" in done.stdout  # whole events are missing, or a part of one
    # Answers that are complete before the damage are still compared.
    code, result = replay(folder, "--answers-only")
    assert code == 0 and result["answers"] > 10
    done = run("replay", tmp_path)
    assert done.returncode == 3 and "found none" in done.stderr


def test_exports(recorded, tmp_path):
    assert run("replay", recorded, tmp_path / "m.jsonl", "--export", "mooncake").returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert len(lines) >= 22 and all(set(line) == {"timestamp", "input_length", "output_length", "hash_ids"} for line in lines)
    assert lines[0]["timestamp"] == 0 and sorted(line["timestamp"] for line in lines) == [line["timestamp"] for line in lines]
    assert run("replay", recorded, tmp_path / "a.jsonl", "--export", "aiperf").returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert all("Tom has" in line["text_input"] and line["output_length"] >= 0 for line in lines)
    assert run("replay", recorded, "--export", "mooncake").returncode == 2


def test_load_on_another_server(recorded):
    with serving(ABACUS) as server:
        done = run("replay", recorded, "--url", server.url, "--speed", "4")
        assert done.returncode == 0, done.stderr
        assert "0 failed" in done.stdout
        assert server.metric("vllm:request_success_total") >= 24


def test_hashes_alone(tmp_path):
    folder = tmp_path / "hashes"
    with serving(ABACUS, "--record", folder, "--record-privacy", "hashes") as server:
        load(server, 8)
    content = b"".join(file.read_bytes() for file in folder.iterdir())
    assert b"apples" not in content
    done = run("replay", folder)
    assert done.returncode == 3 and "hashes" in done.stderr
    assert run("replay", folder, tmp_path / "m.jsonl", "--export", "mooncake").returncode == 0
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) == 8
    with serving(ABACUS) as server:
        done = run("replay", folder, "--url", server.url, "--speed", "10")
        assert done.returncode == 0 and "0 failed" in done.stdout, done.stderr


def test_chat_with_a_schema_keeps_its_steps(tmp_path):
    """Replay takes tokens under a constraint from the recording, and makes the recorded steps."""
    folder = tmp_path / "chat"
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    with serving(ABACUS, "--record", folder) as server:
        for i in range(3):
            body = {"messages": [{"role": "user", "content": "What is %d + 4?" % i}], "max_tokens": 30}
            if i == 1:
                body["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
            assert server.post("/v1/chat/completions", body)[0] == 200
    code, result = replay(folder)
    assert code == 0 and result["answers"] == 2 and result["unchecked_answers"] == 1, result


def test_rotation(tmp_path):
    """The oldest files are deleted; answers in the remaining files are compared."""
    folder = tmp_path / "small"
    with serving(ABACUS, "--record", folder, "--record-size", "1MiB") as server:
        for i in range(12):
            body = {"prompt": "Question: %d + 1? Answer:" % i, "max_tokens": 4, "user": "x" * 200_000}
            assert server.post("/v1/completions", body)[0] == 200
        wait_until(lambda: not any(file.name.endswith("-00000000.flight") for file in folder.iterdir()), "the first file to go")
        assert server.post("/v1/completions", {"prompt": "Question: 1 + 1? Answer:", "max_tokens": 4})[0] == 200
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2 << 20
    done = run("replay", folder)
    assert "deleted by rotation" in done.stderr and done.returncode == 0, done.stdout


def test_refusals(tmp_path):
    done = run("serve", ABACUS, "--record", "/proc/no", "--port", "0")
    assert done.returncode != 0 and "/proc/no" in done.stderr
    done = run("serve", "--models", tmp_path / "models.yaml", "--receipts", tmp_path / "no.key", "--port", "0")
    assert done.returncode != 0 and "--receipts" in done.stderr
