"""Responses stored on disk: which of them exist after a server was killed, and after a drain."""
import contextlib
import json
import signal
import sqlite3

from serving import ABACUS, run, serving, wait_until

FLAGS = ("--max-model-len", 8192, "--max-num-seqs", 4)
LONG = {"input": "3 + 4 =", "background": True, "max_output_tokens": 500, "ignore_eos": True, "min_tokens": 500}
# More tokens than any machine generates during a test.
ENDLESS = {**LONG, "max_output_tokens": 8000, "min_tokens": 8000}


def create(server, **fields):
    status, answer = server.post("/v1/responses", {"model": "m", "temperature": 0, **fields})
    assert status == 200, answer
    return answer


def get(server, response_id, part=""):
    status, text = server.get("/v1/responses/%s%s" % (response_id, part))
    return status, json.loads(text)


def stored(folder):
    """The stored responses as JSON, by id; no server may have the file open."""
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % (folder / "responses.sqlite"), uri=True)) as file:
        return {row[0]: json.loads(row[1]) for row in file.execute("SELECT id, body FROM responses")}


def test_killed(tmp_path):
    folder = tmp_path / "kept"
    with serving(ABACUS, *FLAGS, "--response-store", folder) as server:
        first = create(server, input="12 + 30 =", max_output_tokens=12)
        items = get(server, first["id"], "/input_items")
        deleted = create(server, input="1 + 1 =", max_output_tokens=4)
        assert server.request("DELETE", "/v1/responses/" + deleted["id"])[0] == 200
        running = create(server, **ENDLESS)
        wait_until(lambda: get(server, running["id"])[1]["status"] == "in_progress", "it does not begin")
        refused = run("serve", ABACUS, "--port", 0, "--response-store", folder)
        assert refused.returncode == 5 and "is in use by another process" in refused.stderr, refused
        server.stop(signal.SIGKILL)
    with serving(ABACUS, *FLAGS, "--response-store", folder) as server:
        assert "which contains 2 from earlier runs" in server.log()
        assert get(server, first["id"]) == (200, first)
        assert get(server, first["id"], "/input_items") == items
        assert get(server, deleted["id"])[0] == 404
        status, failed = get(server, running["id"])
        assert status == 200 and failed["status"] == "failed" and "the server ended" in failed["error"]["message"]
        continued = create(server, input="and 1 more?", previous_response_id=first["id"], max_output_tokens=4)
        assert continued["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        assert server.stop() == 0
    assert set(stored(folder)) == {first["id"], running["id"], continued["id"]}


def test_drained(tmp_path):
    # Responses accepted before SIGTERM may finish during the drain; the others are cancelled.
    with serving(ABACUS, *FLAGS, "--response-store", tmp_path) as server:
        finished = create(server, **LONG)
        assert server.stop() == 0
    kept = stored(tmp_path)[finished["id"]]
    assert kept["status"] == "incomplete" and kept["usage"]["output_tokens"] == 500, kept
    with serving(ABACUS, *FLAGS, "--response-store", tmp_path, "--shutdown-timeout", 0) as server:
        cancelled = create(server, **ENDLESS)
        assert server.stop() == 0
    assert stored(tmp_path)[cancelled["id"]]["status"] == "cancelled"
    assert stored(tmp_path)[finished["id"]] == kept


def test_refused_by_name(tmp_path):
    (tmp_path / "responses.sqlite").write_text("no database " * 1000)
    damaged = run("serve", ABACUS, "--port", 0, "--response-store", tmp_path)
    assert damaged.returncode == 3 and "responses.sqlite is damaged" in damaged.stderr, damaged
    useless = run("serve", ABACUS, "--port", 0, "--response-store", tmp_path, "--no-enable-response-store")
    assert useless.returncode == 2 and "--response-store requires --enable-response-store" in useless.stderr, useless
