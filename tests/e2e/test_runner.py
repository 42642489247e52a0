"""tests/run.py with programs that hang or leave processes behind, and with downloads that fail."""
import importlib.util
import re
import time

import pytest

from serving import PATIENCE_S, ROOT, wait_until

GOOD = """echo "[ RUN      ] A.Good"; echo chatter; echo "[       OK ] A.Good (0 ms)"
"""


@pytest.fixture
def runner(monkeypatch):
    spec = importlib.util.spec_from_file_location("runner", ROOT / "tests" / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAUSES_S", [0, 0])
    return module


@pytest.fixture
def gtest(runner, tmp_path, capfd):
    """Runs a script instead of a test program; returns the counts and the output."""
    def go(script, timeout=PATIENCE_S):
        program = tmp_path / "program"
        program.write_text("#!/bin/sh\nreport=${1#--gtest_output=json:}\n" + script)
        program.chmod(0o755)
        runner.PROGRAM_TIMEOUT_S = timeout
        tally = runner.Tally()
        runner.run_gtest(tally, "unit", [program])
        return (tally.passed, tally.failed), capfd.readouterr().out

    return go


@pytest.mark.parametrize("word, code, says", [("--help", 0, "Usage: tests/run.py"), ("-h", 0, "Usage: tests/run.py"),
                                              ("uint", 2, "unknown suite uint: one of test, "), ("--ahed=unit", 2, "unknown suite --ahed=unit")])
def test_help_and_unknown_words_run_no_suite(runner, monkeypatch, capfd, word, code, says):
    monkeypatch.setattr(runner, "SUITES", dict.fromkeys(runner.SUITES, lambda tally: pytest.fail("a suite ran")))
    assert runner.main([word, "unit"]) == code
    assert says in capfd.readouterr().out


def test_a_program_that_hangs_is_told_of_and_ended(runner, gtest, tmp_path):
    begin = time.monotonic()
    counts, said = gtest(GOOD + """echo "[ RUN      ] A.Hangs"; (setsid sleep 1000 & echo $! >%s/pid); sleep 1000""" % tmp_path, timeout=5)
    assert counts == (0, 1)
    assert "A.Hangs" in said and "not done in 5 s" in said and re.search(r"thread \d+ ", said)
    assert "A.Good" not in said and "chatter" not in said
    assert "ended what was left" in said and "sleep 1000" in said
    assert time.monotonic() - begin < PATIENCE_S
    wait_until(lambda: not runner.processes_in(tmp_path), "something is left")


def test_what_a_program_leaves_does_not_hold_up_the_rest(gtest):
    counts, said = gtest("""echo '{"testsuites": [{"testsuite": [{"result": "COMPLETED"}]}]}' >$report; sleep 1000 &""")
    assert counts == (1, 0) and "passed" in said


def test_a_program_that_crashes_fails_with_its_last_test(gtest):
    counts, said = gtest(GOOD + """echo "[ RUN      ] A.Crashes"; printf '{"testsuites": [' >$report; kill -SEGV $$""")
    assert counts == (0, 1) and "A.Crashes" in said and "A.Good" not in said


def test_a_download_is_tried_again(runner, tmp_path, capfd):
    tries = tmp_path / "tries"
    runner.retried(["sh", "-c", "echo x >>%s; [ $(wc -l <%s) = 3 ]" % (tries, tries)])
    assert tries.read_text() == "x\n" * 3
    with pytest.raises(SystemExit):
        runner.retried(["sh", "-c", "echo no network; exit 1"])
    said = capfd.readouterr().out
    assert "no network" in said and said.endswith("0 passed, 1 failed (download)\n")


@pytest.mark.parametrize(("script", "counts"), [("assert place.exists() or place.touch()", (2, 0)), ("assert False", (1, 1))])
def test_an_end_to_end_test_that_fails_runs_again_by_itself(runner, tmp_path, capfd, monkeypatch, script, counts):
    monkeypatch.setattr(runner, "make_venvs", lambda: None)
    others = tmp_path / "others"
    (tmp_path / "test_it.py").write_text("import pathlib\nplace = pathlib.Path(%r)\n" % str(tmp_path / "failed") +
                                         "def test_good():\n    with open(%r, 'a') as out: out.write('x')\n" % str(others) +
                                         "def test_bad():\n    %s\n" % script)
    tally = runner.Tally()
    runner.run_pytest(tally, "e2e", tmp_path / "report.xml", [tmp_path / "test_it.py"], tries=2)
    assert (tally.passed, tally.failed) == counts
    assert others.read_text() == "x"
    said = capfd.readouterr().out
    assert "1 failed, and run again" in said and "AssertionError" in said
