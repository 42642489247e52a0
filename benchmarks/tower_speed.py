#!/usr/bin/env python3
"""Compares image towers with transformers on this machine's CPU: images a second, random weights, bfloat16.

Usage: benchmarks/tower_speed.py [--python PROGRAM]    PROGRAM: a Python with torch 2.9 and transformers 5.24

The towers are those of Gemma 3 4B (896 x 896 pixels) and Qwen3-VL 2B (960 x 1280). Ours are measured by models_benchmark:
cmake --build build/release --target models_benchmark. Both use all cores; each figure is the best of three images.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def theirs(name):
    import torch
    from transformers import AutoConfig, Gemma3Config, Qwen3VLConfig  # noqa: F401
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    if name == "Gemma3":
        from transformers import SiglipVisionConfig, SiglipVisionModel
        config = SiglipVisionConfig(hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, image_size=896,
                                    patch_size=14, vision_use_head=False)
        model = SiglipVisionModel(config).to(torch.bfloat16).eval()
        pixels = torch.rand(1, 3, 896, 896).to(torch.bfloat16)
        run = lambda: model(pixel_values=pixels)
    else:
        from transformers.models.qwen3_vl.configuration_qwen3_vl import (
            Qwen3VLVisionConfig,
        )
        from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel
        config = Qwen3VLVisionConfig(depth=24, hidden_size=1024, intermediate_size=4096, num_heads=16, patch_size=16, temporal_patch_size=2,
                                     spatial_merge_size=2, out_hidden_size=2048, num_position_embeddings=2304,
                                     deepstack_visual_indexes=[5, 11, 17])
        config._attn_implementation = "sdpa"
        model = Qwen3VLVisionModel(config).to(torch.bfloat16).eval()
        pixels = torch.rand(4800, 1536).to(torch.bfloat16)
        grid = torch.tensor([[1, 60, 80]])
        run = lambda: model(pixels, grid_thw=grid)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(4):
            begin = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - begin)
    print(json.dumps({"images_per_second": 1 / best}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.theirs:
        return theirs(options.theirs)
    program = ROOT / "build" / "release" / "bin" / "models_benchmark"
    for name in ("Gemma3", "Qwen3Vl"):
        ran = subprocess.run([program, "--benchmark_filter=BM_%s" % name, "--benchmark_format=json", "--benchmark_repetitions=3"],
                             capture_output=True, text=True, check=True)
        ours = max(row["images/s"] for row in json.loads(ran.stdout)["benchmarks"] if row["run_type"] == "iteration")
        ran = subprocess.run([options.python, __file__, "--theirs", name], capture_output=True, text=True, check=True)
        other = json.loads(ran.stdout.splitlines()[-1])["images_per_second"]
        print("%-8s sluice %.3f images/s, transformers %.3f: %.2f times" % (name, ours, other, ours / other), flush=True)


if __name__ == "__main__":
    main()
