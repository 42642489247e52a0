#!/usr/bin/env python3
"""Quantizes the bundled model to every layout and writes the quality loss of each into docs/checkpoints.md.

    quantization_table.py SLUICE [--limit N]

For each layout: the bytes of the weights, the change of the predictions on the held-out problems (`sluice diff`), and the number of
problems that a server with the quantized weights solves. The rows replace the text between the two marks in docs/checkpoints.md.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/checkpoints.md"
MODEL = ROOT / "models/abacus"
BEGIN, END = "<!-- table: quantization_table.py -->", "<!-- end of table -->"
LAYOUTS = ["modelopt-fp8", "quark-fp8", "fp8-dynamic", "block-fp8", "int8-w8a8", "modelopt-nvfp4", "quark-mxfp4"]
VARIANTS = [(layout, []) for layout in LAYOUTS] + [("modelopt-nvfp4", ["--group-scales", "mse"]), ("quark-mxfp4", ["--group-scales", "mse"])]
CALIBRATED = ("modelopt-fp8", "modelopt-nvfp4", "quark-fp8")


def weights_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def accuracy(program, folder, limit):
    """Starts a server; returns the numbers of correct answers and of questions."""
    log = tempfile.TemporaryFile(mode="w+")
    server = subprocess.Popen([program, "serve", str(folder), "--port", "0", "--served-model-name", "abacus", "--max-model-len", "1024"],
                              stdout=log, stderr=subprocess.STDOUT, text=True)
    try:
        url = None
        while url is None:
            if server.poll() is not None:
                raise SystemExit("the server of %s ended with %d" % (folder, server.returncode))
            time.sleep(0.1)
            log.seek(0)
            found = re.search(r"at http://[^:]+:(\d+), ready", log.read())
            url = found and "http://127.0.0.1:" + found.group(1)
        command = [sys.executable, str(ROOT / "tools/demo_model/measure.py"), "--url", url, "--file", str(MODEL / "heldout.jsonl"), "--timeout", "600"]
        text = subprocess.run(command + (["--limit", str(limit)] if limit else []), check=True, capture_output=True, text=True).stdout
        right, total = re.search(r"(\d+) of (\d+) right", text).groups()
        return int(right), int(total)
    finally:
        server.terminate()
        server.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--limit", type=int, help="only the first so many problems")
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    rows = ["| Layout | Bytes | KL divergence | Top-1 agreement | Perplexity | Problems solved |", "|---|---|---|---|---|---|"]
    plain = weights_of(MODEL)
    with tempfile.TemporaryDirectory() as scratch:
        text = str(MODEL / "heldout.jsonl")
        right, total = accuracy(program, MODEL, args.limit)
        base_row = len(rows)
        rows.append(None)
        for layout, extra in VARIANTS:
            out = pathlib.Path(scratch) / (layout + "".join(extra))
            command = [program, "quantize", str(MODEL), str(out), "--to", layout, "--json", *extra]
            subprocess.run(command + (["--calibrate", text] if layout in CALIBRATED else []), check=True, capture_output=True)
            diff = json.loads(subprocess.run([program, "diff", str(MODEL), str(out), "--text", text, "--tokens", "20000", "--json"], check=True,
                                             capture_output=True, text=True).stdout)
            solved, _ = accuracy(program, out, args.limit)
            rows[base_row] = "| BF16 | %.2f MiB | | | %.4f | %d of %d |" % (plain / 2**20, diff["perplexity_a"], right, total)
            rows.append("| %s%s | %.2f MiB (%.0f %%) | %.5f | %.2f %% | %.4f | %d of %d |" %
                        (layout, ", scales by least squares" if extra else "", weights_of(out) / 2**20, 100 * weights_of(out) / plain,
                         diff["kl_divergence"], 100 * diff["top1_agreement"], diff["perplexity_b"], solved, total))
            print(rows[-1], flush=True)
    rows = [row for row in rows if row]
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(rows) + "\n\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
