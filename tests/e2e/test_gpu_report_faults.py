"""tools/gpu_report.sh with a program whose parts crash and hang: the results of other parts are complete."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from serving import PATIENCE_S, ROOT

# Time limit of a part; a part that does not hang ends at once on any machine.
BUDGET_S = 6
# Replaces the program. Its parts succeed, fail, crash, hang despite signals, or find no device.
PROGRAM = """#!/bin/sh
case "$*" in
  version*) echo '{"version": "stand-in"}' ;;
  "selftest --list") for part in $STAND_IN_PARTS; do echo "$part  of the stand-in"; done ;;
  "kernel-bench --list") echo limits ;;
  *"--part good"*|*"--part limits"*|*"--part bad"*|*"--part absent"*|*"--part half"*|*"--part library"*)
    while [ "$1" != --part ]; do shift; done; part="$2"
    while [ "$1" != --json ]; do shift; done
    result=pass; [ "$part" = bad ] && result=fail; [ "$part" = absent ] && result=skipped
    [ "$part" = library ] && result=skipped
    complete=true; case "$part" in half*) complete=false ;; esac
    echo '{"device": {"name": "stand-in"}, "complete": '$complete', "rows": [{"part": "'$part'", "operator": "sum", "kernel": "sum",
           "shape": "1", "result": "'$result'", "message": "off by one", "achieved": null, "limit": 1}]}' >"$2"
    [ $part = half-crash ] && kill -SEGV $$
    [ $part = half-hang ] && sleep 600
    [ $result = pass ] ;;
  *"--part ruin"*)
    while [ "$1" != --json ]; do shift; done
    rm -r "$(dirname "$2")"; echo "no folder any more" >"$(dirname "$2")" ;;
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

    def start(parts, *words, argv=(ROOT / "tools" / "gpu_report.sh",), **variables):
        return subprocess.Popen([*argv, "--out", tmp_path / "out", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "SLUICE_BIN": str(folder), "STAND_IN_PARTS": parts,
                                     "STAND_IN_PID": str(tmp_path / "pid"), **variables})

    return start


def runs(pid):
    """Whether the process runs; a zombie does not."""
    try:
        return pathlib.Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def parts_in(folder):
    return json.loads((folder / "out" / "report.json").read_text())["parts"]


@pytest.mark.slow
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
    assert table in output and "1 of 3" in table and "did not start: no GPU" in table

    # Successful parts do not run again.
    again, _ = report("good crash bad").communicate(timeout=PATIENCE_S)
    assert "== selftest-good: there already" in again and "== selftest-crash (at most" in again


@pytest.mark.slow
def test_the_rows_of_a_part_that_was_cut_are_kept(report, tmp_path):
    report("half-hang half-crash good", "--part-budget", str(BUDGET_S)).communicate(timeout=PATIENCE_S)
    parts = parts_in(tmp_path)
    assert (parts["selftest-half-hang"]["status"], parts["selftest-half-crash"]["status"]) == ("cut", "failed")
    assert "ended by signal 11" in parts["selftest-half-crash"]["why"]
    assert {row["part"] for row in parts["selftest"]["rows"]} == {"half-hang", "half-crash", "good"}
    assert parts["selftest"]["why"] == "half-hang cut, half-crash failed"


def test_a_part_is_not_begun_with_nothing_left_for_it(report, tmp_path):
    program = "import gpu_report; gpu_report.SELFTEST_S = %d; gpu_report.main()" % BUDGET_S
    report("hang good", "--part-budget", str(BUDGET_S), argv=(sys.executable, "-c", program),
           PYTHONPATH=str(ROOT / "tools")).communicate(timeout=PATIENCE_S)
    good = parts_in(tmp_path)["selftest-good"]
    assert good["status"] == "cut" and "no time left" in good["why"] and "rows" not in good


def test_results_of_another_device_are_not_taken_for_this_ones(report):
    report("good", "--device", "emulated").communicate(timeout=PATIENCE_S)
    other, _ = report("good").communicate(timeout=PATIENCE_S)
    assert "== selftest-good (at most" in other and "there already" not in other
    same, _ = report("good").communicate(timeout=PATIENCE_S)
    assert "== selftest-good: there already" in same


def end_while_a_part_hangs(process, tmp_path):
    """Stops a report once its part `hang` has begun; returns its output."""
    while not (tmp_path / "out" / "selftest-hang.log").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE_S)
    return output


@pytest.mark.slow
def test_the_table_knows_what_earlier_calls_measured(report, tmp_path):
    report("good good-too").communicate(timeout=PATIENCE_S)
    process = report("hang good good-too")
    output = end_while_a_part_hangs(process, tmp_path)
    assert "2 of 2" in output and "2 of 2" in (tmp_path / "out" / "table.txt").read_text()


def test_what_cannot_be_written_is_printed_all_the_same(report):
    process = report("good ruin")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "Traceback" not in output
    assert "cannot be written" in output and "1 of 1" in output and "launch to ready" in output


def test_what_cannot_work_is_told_at_once(report, tmp_path):
    def said(*words, **variables):
        process = report("good", *words, **variables)
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and "Traceback" not in output, output
        return output

    (tmp_path / "file").write_text("")
    assert "a folder that can be written was expected" in said("--out", tmp_path / "file" / "out")
    # If the named folder has no program, no other one is used.
    assert "no program in %s" % tmp_path in said(SLUICE_BIN=str(tmp_path))
    old = tmp_path / "old"
    old.mkdir()
    (old / "python3").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.2 || exit 1\n')
    (old / "python3").chmod(0o755)
    assert "3.9 or later in PATH, and nothing else; found Python 3.8.2" in said(PATH="%s:%s" % (old, os.environ["PATH"]))


@pytest.mark.slow
def test_under_nohup_a_terminal_that_goes_ends_nothing(report, tmp_path):
    process = report("good hang", "--part-budget", str(BUDGET_S), argv=("nohup", ROOT / "tools" / "gpu_report.sh"))
    while not (tmp_path / "out" / "selftest-hang.log").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert "told to end" not in output and parts_in(tmp_path)["launch"]["status"] == "failed"


def test_without_a_device_one_part_says_so(report, tmp_path):
    report("nothing good").communicate(timeout=PATIENCE_S)
    parts = parts_in(tmp_path)
    assert "selftest-good" not in parts and parts["selftest"]["why"] == "exit code 3; no GPU"


@pytest.mark.slow
def test_a_report_that_is_told_to_end_prints_what_it_knows(report, tmp_path):
    process = report("good hang")
    output = end_while_a_part_hangs(process, tmp_path)
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


def test_what_nobody_looked_at_does_not_count_as_passed(report, tmp_path):
    """Runs without the vendor's library, and without one of the vendor's tools."""
    process = report("good library", "--run", "selftest")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    parts = parts_in(tmp_path)
    assert parts["selftest-good"]["status"] == "done" and parts["selftest-library"]["status"] == "missing"
    assert parts["selftest"]["status"] == "failed" and parts["selftest"]["why"] == "library missing"
    assert parts["selftest-racecheck"] == {"status": "missing", "why": "compute-sanitizer is not in PATH"}
    assert "kernel-bench" not in parts and "launch" not in parts
    assert "missing: no part's log names it" in output
