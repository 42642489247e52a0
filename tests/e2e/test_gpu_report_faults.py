"""tools/gpu_report.sh with a program whose parts crash and hang: the others' results are there all the same."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from serving import PATIENCE_S, ROOT

# Of a part; those that end do so in an instant, on any machine.
BUDGET_S = 6
# Stands in for the program: parts that do well, fail, crash, hang whatever signal comes, or find no device.
PROGRAM = """#!/bin/sh
case "$*" in
  version*) echo '{"version": "stand-in"}' ;;
  "selftest --list") for part in $STAND_IN_PARTS; do echo "$part  of the stand-in"; done ;;
  "kernel-bench --list") echo limits ;;
  *"--part good"*|*"--part limits"*|*"--part bad"*|*"--part absent"*)
    while [ "$1" != --part ]; do shift; done; part="$2"
    while [ "$1" != --json ]; do shift; done
    result=pass; [ "$part" = bad ] && result=fail; [ "$part" = absent ] && result=skipped
    echo '{"device": {"name": "stand-in"}, "rows": [{"part": "'$part'", "operator": "sum", "kernel": "sum", "shape": "1",
           "result": "'$result'", "message": "off by one", "achieved": 1, "limit": 1}]}' >"$2"
    [ $result = pass ] ;;
  *"--part crash"*) echo "about to crash"; kill -SEGV $$ ;;
  *"--part hang"*) trap '' INT TERM; echo $$ >"$STAND_IN_PID"; echo "about to hang"; while :; do sleep 1; done ;;
  *"--part nothing"*) echo "no GPU"; exit 3 ;;
  serve*) echo "no GPU"; exit 3 ;;
esac
"""


@pytest.fixture
def report(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sluice", "vllm"):
        (folder / name).write_text(PROGRAM)
        (folder / name).chmod(0o755)

    def start(parts, *words):
        return subprocess.Popen([ROOT / "tools" / "gpu_report.sh", "--out", tmp_path / "out", *words], stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "SLUICE_BIN": str(folder), "STAND_IN_PARTS": parts,
                                     "STAND_IN_PID": str(tmp_path / "pid")})

    return start


def runs(pid):
    """Neither gone nor dead and not yet noticed by its new parent."""
    try:
        return pathlib.Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def parts_in(folder):
    return json.loads((folder / "out" / "report.json").read_text())["parts"]


def test_what_crashes_or_hangs_costs_its_own_result_alone(report, tmp_path):
    process = report("good absent crash hang bad", "--part-budget", str(BUDGET_S))
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    parts = parts_in(tmp_path)
    assert parts["selftest-good"]["status"] == "done"
    assert parts["selftest-absent"]["status"] == "skipped" and parts["selftest-absent"]["why"] == "off by one"
    assert parts["selftest-crash"]["status"] == "failed" and "ended by signal 11; about to crash" in parts["selftest-crash"]["why"]
    assert parts["selftest-hang"]["status"] == "cut" and "not done in %d s; about to hang" % BUDGET_S in parts["selftest-hang"]["why"]
    assert parts["selftest-bad"]["status"] == "failed" and "sum, 1: off by one" in parts["selftest-bad"]["why"]
    whole = parts["selftest"]
    assert (whole["passed"], whole["failed"], whole["status"]) == (1, 1, "failed")
    assert whole["why"] == "crash failed, hang cut, bad failed"
    assert parts["kernel-bench"]["status"] == "done" and parts["launch"]["status"] == "failed"
    table = (tmp_path / "out" / "table.txt").read_text()
    assert table in output and "1 of 2" in table and "did not start: no GPU" in table

    # What did well is not run again.
    again, _ = report("good crash bad").communicate(timeout=PATIENCE_S)
    assert "== selftest-good: there already" in again and "== selftest-crash (at most" in again


def test_without_a_device_one_part_says_so(report, tmp_path):
    report("nothing good").communicate(timeout=PATIENCE_S)
    parts = parts_in(tmp_path)
    assert "selftest-good" not in parts and parts["selftest"]["why"] == "exit code 3; no GPU"


def test_a_report_that_is_told_to_end_prints_what_it_knows(report, tmp_path):
    process = report("good hang")
    while not (tmp_path / "out" / "selftest-hang.log").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "selftest, rows passed" in output and "told to end" in output
    parts = parts_in(tmp_path)
    assert parts["selftest-good"]["status"] == "done" and parts["selftest-hang"]["status"] == "cut"
    assert not (tmp_path / "out" / "selftest-hang.json").exists(), "the next call runs it"


def test_a_report_that_is_killed_leaves_its_table_and_nothing_running(report, tmp_path):
    process = report("good hang")
    pid_file = tmp_path / "pid"
    while not (pid_file.exists() and pid_file.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait(timeout=PATIENCE_S)
    assert parts_in(tmp_path)["selftest-good"]["status"] == "done"
    assert "1 of 1" in (tmp_path / "out" / "table.txt").read_text()
    end = time.time() + PATIENCE_S
    while runs(pid_file.read_text().strip()):
        assert time.time() < end, "it still runs"
        time.sleep(0.05)
