"""The maintainers' measuring tools: the comparison page, the list of regressions, the table of marks."""
import importlib.util
import json
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from serving import ABACUS, DATA, ROOT, run


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "compare"))
    return load(ROOT / "benchmarks" / "compare" / "compare.py")


def results():
    return {"machine": {"cpu": "A & B <CPU>", "cores": 2, "memory_gib": 24.0}, "threads": 2, "shape": "s", "decode_prompt": 128, "tokens": 32,
            "rounds": 3, "date": "2026-01-02", "limits": {"limit_read_bytes_per_second": [3e10, 5e10, 4e10]},
            "formats": {"bf16": {
                "sluice": {"program": "sluice", "version": "1", "values": {"prefill-512": [300, 500, 400], "decode-1": [20, 19, 21]}},
                "vLLM": {"program": "vllm", "version": "0.32.0", "values": {"prefill-512": [450.0], "decode-1": []}},
                "llama.cpp": {"program": "llama.cpp", "values": {}, "error": "no compiler"}}}}


def test_the_page_of_a_comparison(compare, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    other = results()
    other["machine"]["cpu"] = "Other"
    other["formats"]["bf16"]["sluice"]["values"]["prefill-512"] = [777]
    (runs / "one.json").write_text(json.dumps(results()))
    (runs / "two.json").write_text(json.dumps(other))
    compare.report.write(str(runs), str(tmp_path / "page.md"))
    page = (tmp_path / "page.md").read_text()
    assert "| sluice | 400 | **20.0** |" in page
    assert "| vLLM 0.32.0 | **450** | – |" in page
    assert "- llama.cpp: no compiler" in page
    assert "memory reads 40 GB/s" in page and "2026-01-02" in page
    assert "## Other" in page and "| sluice | **777** | **20.0** |" in page and "images/performance-two.svg" in page
    plot = xml.etree.ElementTree.parse(tmp_path / "images" / "performance-one.svg")
    words = ["".join(text.itertext()) for text in plot.iter("{http://www.w3.org/2000/svg}text")]
    assert "450" in words and "vLLM" in words and "A & B <CPU>" in " ".join(words)


def test_machines_under_unlike_loads_are_not_on_one_page(compare, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(results()))
    (tmp_path / "two.json").write_text(json.dumps({**results(), "tokens": 64}))
    with pytest.raises(SystemExit, match="two.json was measured with"):
        compare.report.write(str(tmp_path), str(tmp_path / "page.md"))


def test_a_machine_has_its_own_results(compare):
    names = [compare.os.path.relpath(compare.results_file(cpu, shape), compare.RUNS)
             for cpu, shape in (("AMD EPYC", "llama-3.2-1b-shape"), ("Intel(R) Xeon(R) Processor", "lfm2-1.2b-shape"))]
    assert names == ["amd-epyc.json", "lfm2-1.2b-shape/intel-xeon-processor.json"]


def test_pieces_of_a_run_are_merged(compare, tmp_path):
    known = results()
    options = type("Options", (), {"prepare": False, "run": None, "results": str(tmp_path / "run.json")})
    compare.merge(known, "bf16", {"vLLM": {"program": "vllm", "version": "0.33.0", "values": {"decode-1": [30], "prefill-512": []}},
                                  "llama.cpp": {"program": "llama.cpp", "values": {"decode-1": [10]}}}, options)
    entries = known["formats"]["bf16"]
    assert entries["vLLM"]["values"] == {"prefill-512": [450.0], "decode-1": [30]} and entries["vLLM"]["version"] == "0.33.0"
    assert entries["llama.cpp"] == {"program": "llama.cpp", "values": {"decode-1": [10]}}
    assert entries["sluice"]["values"]["decode-1"] == [20, 19, 21]


def test_the_page_tells_which_rows_are_of_which_run(compare, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    known = results()
    (runs / "one.json").write_text(json.dumps(known))
    compare.report.write(str(runs), str(tmp_path / "page.md"))
    assert "of these runs" not in (tmp_path / "page.md").read_text(), "all rows are of one run"
    options = type("Options", (), {"prepare": False, "run": "2026-01-03 10:00", "results": str(runs / "one.json")})
    compare.report.remember_runs(known)
    compare.merge(known, "bf16", {"sluice": {"program": "sluice", "version": "sluice 1 (commit abc123, Release)", "values": {"decode-1": [30]}}},
                  options)
    compare.report.write(str(runs), str(tmp_path / "page.md"))
    page = (tmp_path / "page.md").read_text()
    assert "- 2026-01-02: BF16 prefill 512\n" in page
    assert "- 2026-01-03 10:00 (sluice at abc123): BF16 decode 1\n" in page


def test_an_engine_that_fails_is_a_row_that_says_so(compare, tmp_path):
    program = tmp_path / "sluice"
    program.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'sluice 9' && exit\necho 'no such model' >&2\nexit 3\n")
    program.chmod(0o755)
    options = type("Options", (), {"rows": ["decode-1"], "peers": ["sluice"], "prepare": False, "rounds": 2, "decode_prompt": 8, "tokens": 4,
                                   "threads": 1, "sluice": str(program), "folder": str(tmp_path), "name": "s",
                                   "results": str(tmp_path / "run.json"), "run": "2026-01-03 10:00",
                                   "shape": str(ROOT / "benchmarks" / "llama-3.2-1b-shape")})
    known = {"formats": {}, "limits": {}}
    compare.run_format(options, known, "bf16")
    assert known["formats"]["bf16"] == {"sluice": {"program": "sluice", "version": "sluice 9", "error": "no such model", "values": {}}}
    assert json.loads((tmp_path / "run.json").read_text()) == known, "a run that is cut keeps its whole rows"


def test_regressions_are_told(capsys):
    regressions = load(ROOT / "tools" / "regressions.py")
    stored = {"encode": 1000, "read-request": 1000, "stream-token": 1000}
    worse = regressions.compare("instructions", {"encode": 1040, "read-request": 1020, "stream-token": 500, "new-one": 7}, stored)
    assert worse == ["encode"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("+4.0 %  WORSE") and lines[1].endswith("+2.0 %") and lines[3].endswith("new")


def test_regressions_without_stored_figures_are_an_error(monkeypatch, tmp_path):
    regressions = load(ROOT / "tools" / "regressions.py")
    monkeypatch.setattr(regressions, "FILE", str(tmp_path / "regressions.json"))
    monkeypatch.setattr(sys, "argv", ["regressions.py"])
    with pytest.raises(SystemExit, match="no figures are stored: .*regressions.json does not exist"):
        regressions.main()


def test_marks_are_told_and_what_cannot_be_measured(tmp_path):
    program = tmp_path / "bin" / "sluice"
    program.parent.mkdir()
    program.write_text("""#!/bin/sh
[ "$1" = --version ] && echo 'sluice 9' && exit
case "$*" in *' 16384 '*) echo 'no | memory' >&2; exit 3;; esac
echo '{"num_threads": 2, "host_milliseconds_per_step": 0.25}'
""")
    program.chmod(0o755)

    def marks(*rows):
        result = subprocess.run([sys.executable, ROOT / "benchmarks" / "marks.py", "--build", tmp_path, "--results", tmp_path / "marks.json", *rows],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout, json.loads((tmp_path / "marks.json").read_text())

    status, table, kept = marks("host")
    assert status == 0, "a mark that is not held is reported alone"
    assert "| 0.250 ms | at most 0.200 ms | no |" in table and kept["lines"][0]["values"] == {"value": 0.25, "mark": 0.2} and kept["threads"] == 2
    status, table, kept = marks("prefill-16k", "idle-streams", "host")
    assert status == 1 and [line["held"] for line in kept["lines"]] == [None, None, False]
    assert "| prefill-16k | not measured: " in table and "ended with 3: no / memory |" in table
    assert "there is no %s/bin/server_benchmark: ninja -C %s server_benchmark" % (tmp_path, tmp_path) in table


@pytest.mark.parametrize("form", ["bf16", "fp8", "nvfp4", "mxfp4", "int4"])
def test_random_weights_are_a_checkpoint(monkeypatch, tmp_path, form):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    weights = load(ROOT / "benchmarks" / "random_weights.py")
    config = json.loads((ABACUS / "config.json").read_text())
    if form != "bf16":
        shape = json.loads((ROOT / "benchmarks" / ("llama-3.2-1b-%s-shape" % form) / "config.json").read_text())
        config["quantization_config"] = shape["quantization_config"]
    weights.write_checkpoint(tmp_path, {**config, "num_hidden_layers": 2}, form)
    done = run("bench", "latency", tmp_path, "--tokenizer", DATA / "checkpoints" / "llama-bf16", "--no-limits", "--batch-size", "1", "--input-len", "16",
               "--output-len", "4", "--num-iters", "1")
    assert done.returncode == 0 and "decode" in done.stdout, done.stderr
