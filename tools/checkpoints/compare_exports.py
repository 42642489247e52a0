#!/usr/bin/env python3
"""Compares the output of `sluice quantize` with the exports of the original tools, tensor for tensor.

    compare_exports.py SLUICE SAMPLES        # SAMPLES: folder with llama-bf16, llama-modelopt-fp8, ...; needs NumPy

For every pair of a BF16 checkpoint and a tool's export of it: prints the fraction of tensors that are equal byte for byte, by kind. Scales
of inputs, keys and values depend on the calibration text, which differs from the tools'; only their presence is compared.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import decode_weights

PAIRS = [  # base, export, --to, --kv-cache
    ("llama-bf16", "llama-modelopt-fp8", "modelopt-fp8", "fp8"),
    ("llama-bf16", "llama-modelopt-nvfp4", "modelopt-nvfp4", "fp8"),
    ("llama-bf16", "llama-quark-fp8", "quark-fp8", "fp8"),
    ("llama-bf16", "llama-quark-mxfp4", "quark-mxfp4", "none"),
    ("llama-bf16", "llama-llmc-fp8-dynamic", "fp8-dynamic", "none"),
    ("llama-bf16", "llama-llmc-int8-w8a8", "int8-w8a8", "none"),
    ("qwen3-bf16", "qwen3-modelopt-fp8", "modelopt-fp8", "fp8"),
    ("qwen3-bf16", "qwen3-modelopt-nvfp4", "modelopt-nvfp4", "fp8"),
    ("qwen3-bf16", "qwen3-fp8-block", "block-fp8", "none"),
    ("qwen3-bf16", "qwen3-llmc-int8-w8a8", "int8-w8a8", "none"),
    ("qwen3-moe-bf16", "qwen3-moe-modelopt-fp8", "modelopt-fp8", "fp8"),
    ("qwen3-moe-bf16", "qwen3-moe-modelopt-nvfp4", "modelopt-nvfp4", "fp8"),
    ("qwen3-moe-bf16", "qwen3-moe-quark-mxfp4", "quark-mxfp4", "none"),
    ("llama4-bf16", "llama4-modelopt-fp8", "modelopt-fp8", "fp8"),
    ("llama4-bf16", "llama4-modelopt-nvfp4", "modelopt-nvfp4", "fp8"),
    ("llama4-bf16", "llama4-quark-fp8", "quark-fp8", "fp8"),
    ("llama4-bf16", "llama4-quark-mxfp4", "quark-mxfp4", "none"),
    ("llama4-bf16", "llama4-llmc-fp8-dynamic", "fp8-dynamic", "none"),
]
TEXT = "Seven times eight is fifty-six. The quick brown fox jumps over the lazy dog. 1 2 3 4 5 6 7 8 9 10.\n" * 40


def kind_of(name):
    last = name.rsplit(".", 1)[-1]
    for kind in ("input_scale", "k_scale", "v_scale", "output_scale"):
        if last.endswith(kind):
            return "measured scales"
    if last.endswith(("weight_scale", "weight_scale_inv", "weight_scale_2")):
        return "weight scales"
    return "codes and plain weights"


def main():
    program, samples = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        text = pathlib.Path(scratch) / "text.txt"
        text.write_text(TEXT)
        for base, export, target, kv in PAIRS:
            out = pathlib.Path(scratch) / export
            command = [program, "quantize", str(samples / base), str(out), "--to", target, "--kv-cache", kv]
            if kv != "none" or target.startswith(("modelopt", "quark-fp8")):
                command += ["--calibrate", str(text)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            ours, theirs = decode_weights.load(out), decode_weights.load(samples / export)
            counts = collections.defaultdict(lambda: [0, 0])
            for name in sorted(set(ours) & set(theirs)):
                kind = kind_of(name)
                same = ours[name][:2] == theirs[name][:2] and (kind == "measured scales" or ours[name][2] == theirs[name][2])
                counts[kind][0] += same
                counts[kind][1] += 1
                if not same:
                    counts[kind].append(name)
            line = ", ".join("%s %d of %d" % (kind, *count[:2]) for kind, count in sorted(counts.items()))
            print("%-26s %-15s %s" % (export, target, line))
            for count in counts.values():
                for name in count[2:5]:
                    print("    differs: %s %s %s / %s %s" % (name, *ours[name][:2], *theirs[name][:2]))
            for label, left in (("only ours", set(ours) - set(theirs)), ("only theirs", set(theirs) - set(ours))):
                if left:
                    print("    %s: %s" % (label, ", ".join(sorted(left)[:4]) + (" and %d more" % (len(left) - 4) if len(left) > 4 else "")))
            mine = json.loads((out / "config.json").read_text())["quantization_config"]
            tools = json.loads((samples / export / "config.json").read_text())["quantization_config"]
            missing = sorted(key for key in tools if key not in mine and tools[key] not in (None, False, {}, []))
            if missing:
                print("    settings that only the tool writes: " + ", ".join(missing))


if __name__ == "__main__":
    main()
