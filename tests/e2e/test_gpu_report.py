"""selftest, kernel-bench and tools/gpu_report.sh without a GPU, on the emulated device or the device that SLUICE_TESTED_DEVICE selects."""
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time

import pytest

from serving import ABACUS, BIN, PATIENCE_S, ROOT, TESTED_DEVICE, run


def test_selftest_passes_on_the_emulator(tmp_path):
    report = tmp_path / "rows.json"
    done = run("selftest", "--device", TESTED_DEVICE, "--part", "instructions", "--part", "linear", "--part", "attention", "--json", report)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(report.read_text())
    assert rows["complete"] and rows["failed"] == 0 and rows["passed"] == len(rows["rows"]) > 90
    assert {row["part"] for row in rows["rows"]} == {"instructions", "linear", "attention"}
    # Exact inputs allow no error.
    assert all(row["bound"] == 0 for row in rows["rows"] if row["part"] == "linear" and "integers" in row["shape"] and "bf16" not in row["shape"])


@pytest.mark.slow
def test_the_bundled_model_agrees_with_the_cpu_in_every_format():
    done = run("selftest", "--device", TESTED_DEVICE, "--part", "models", timeout=2 * PATIENCE_S)
    assert done.returncode == 0 and "8 passed, 0 failed" in done.stdout, done.stdout + done.stderr


def test_a_selftest_that_is_ended_leaves_its_rows(tmp_path):
    report = tmp_path / "rows.json"
    process = subprocess.Popen([BIN / "sluice", "selftest", "--device", TESTED_DEVICE, "--json", report], stdout=subprocess.DEVNULL)
    try:
        while not report.exists():
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait(timeout=PATIENCE_S)
    rows = json.loads(report.read_text())
    assert process.returncode == -signal.SIGKILL and rows["complete"] is False
    assert rows["rows"][0]["result"] == "pass"


def test_a_report_goes_through_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "rows.json")
    (tmp_path / "rows.json").write_text("of an earlier run")
    done = run("selftest", "--device", TESTED_DEVICE, "--part", "draws", "--json", tmp_path / "link")
    assert done.returncode == 0 and (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "rows.json").read_text())["complete"]


@pytest.mark.skipif(TESTED_DEVICE != "emulated", reason="this program was built for AMD's GPUs")
def test_without_a_gpu_both_commands_say_why():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    for command in ("selftest", "kernel-bench"):
        done = run(command, "--device", "cuda", env=environment)
        assert done.returncode == 3 and "CUDA" in done.stderr, done.stdout + done.stderr
        assert "pass" not in done.stdout


def test_the_emulators_speed_is_not_measured():
    done = run("kernel-bench", "--device", TESTED_DEVICE)
    assert done.returncode == 3 and "is meaningless" in done.stderr


def test_unknown_parts_are_named():
    done = run("selftest", "--device", TESTED_DEVICE, "--part", "algebra")
    assert done.returncode == 2 and "algebra" in done.stderr and "grouped-linear" in done.stderr
    listed = run("selftest", "--list")
    assert listed.returncode == 0 and "attention" in listed.stdout


def gpu_report(out, *words):
    # Requests to the server must bypass any proxy.
    proxies = {name: "http://127.0.0.1:9" for name in ("http_proxy", "HTTP_PROXY", "all_proxy")}
    return subprocess.run([ROOT / "tools" / "gpu_report.sh", "--device", TESTED_DEVICE, "--model", ABACUS, "--short", "--out", out, *words],
                          capture_output=True, text=True, timeout=2 * PATIENCE_S, env={**os.environ, **proxies, "SLUICE_BIN": str(BIN)})


@pytest.mark.slow
def test_gpu_report_runs_goes_on_and_cuts(tmp_path):
    done = gpu_report(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    parts = report["parts"]
    assert parts["selftest"]["status"] == "done" and parts["selftest"]["failed"] == 0
    assert parts["kernel-bench"] == {**parts["kernel-bench"], "status": "skipped", "why": "emulated"}
    assert parts["launch"]["ready_seconds"] > 0
    assert parts["ladder-16-1"]["completed"] == 1 and parts["ladder-16-1"]["output_tokens_per_second"] > 0
    assert parts["ladder-16-2"]["window_seconds"] >= 0.2 and parts["ladder-16-2"]["output_tokens_per_second"] > 0
    assert "skipped: emulated" in done.stdout and "output tokens/s" in done.stdout

    # One part runs again; the results of the others are reused.
    (tmp_path / "ladder-16-1.json").unlink()
    again = gpu_report(tmp_path, "--patience", "2")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("there already") == 5 and "== ladder-16-1 (at most 80 s)" in again.stdout

    # If there is no time left, the report says so for every missing part.
    cut = gpu_report(tmp_path / "cut", "--budget", "1")
    assert cut.returncode == 1
    parts = json.loads((tmp_path / "cut" / "report.json").read_text())["parts"]
    assert {part["status"] for part in parts.values()} == {"cut", "failed", "skipped"}


def carried(folder):
    """A folder with only the files that the archive of `make dist` contains, as on a machine with a GPU."""
    for name in ("tools/gpu_report.sh", "tools/gpu_report.py", "bin/sluice"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BIN / "sluice" if name == "bin/sluice" else ROOT / name, folder / name)
    shutil.copytree(ABACUS, folder / "models" / "abacus")
    shutil.copytree(ROOT / "benchmarks" / "llama-3.3-70b-fp8-shape", folder / "benchmarks" / "llama-3.3-70b-fp8-shape")
    return folder


def lent_run(folder, which, *words):
    """Makes one run as on a machine that is available for a short time. Returns its result, the report, and the names of the files in the
    archive that the run writes."""
    archive = folder.parent / (which + ".tgz")
    done = subprocess.run([folder / "tools" / "gpu_report.sh", "--device", TESTED_DEVICE, "--run", which, "--out", folder.parent / "gpu-report",
                           "--archive", archive, *words], capture_output=True, text=True, timeout=4 * PATIENCE_S, cwd=folder.parent,
                          env={"PATH": os.environ["PATH"], "HOME": str(folder.parent)})
    assert not archive.with_name(archive.name + ".partial").exists()
    with tarfile.open(archive) as packed:
        return done, json.load(packed.extractfile("gpu-report/report.json")), packed.getnames()


@pytest.mark.slow
def test_two_runs_on_a_lent_machine_bring_an_archive_each(tmp_path):
    folder = carried(tmp_path / "sluice")
    done, report, names = lent_run(folder, "first")
    # NVIDIA's tool is not installed here. A part that did not run does not count as passed.
    assert done.returncode == 1 and report["parts"]["selftest-memcheck"]["status"] == "missing", done.stdout + done.stderr
    parts = {name: part["status"] for name, part in report["parts"].items()}
    assert {name: parts["selftest-" + name] for name in ("instructions", "memory", "linear", "attention", "library")} == {
        "instructions": "done", "memory": "done", "linear": "done", "attention": "done", "library": "skipped"}
    assert report["parts"]["selftest"]["failed"] == 0 < report["parts"]["selftest"]["passed"]
    assert report["seconds"] < 150 and "launch" not in parts and "kernel-bench" not in parts
    assert {"gpu-report/table.txt", "gpu-report/selftest-linear-rows.json", "gpu-report/selftest-linear.log"} <= set(names)

    done, report, names = lent_run(folder, "second", "--short", "--model", folder / "models" / "abacus")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = report["parts"]
    assert parts["kernel-bench"]["status"] == "skipped" and parts["launch"]["status"] == "done"
    assert parts["ladder-16-1"]["status"] == parts["ladder-16-1-graphs"]["status"] == "done"
    assert parts["ladder-16-1-graphs"]["of"]["serve_options"] == "--cuda-graphs" and parts["ladder-16-1"]["of"]["serve_options"] == ""
    assert "gpu-report/server-2.log" in names and "the same with CUDA graphs" in done.stdout
