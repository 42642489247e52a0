#!/usr/bin/env python3
"""Estimates the milliseconds of each part of a decode step of Llama 3.3 70B on one GPU, and the output tokens per second. Measures nothing.

Usage: tools/gpu_estimates.py    prints the tables of docs/cuda.md; the last two are for several GPUs

C sequences run at once, each with 1,024 prompt tokens and 1,024 answer tokens, of which half are generated. A step computes one token of
each sequence, and C tokens of prefill, since every 1,024 answer tokens need a prompt of 1,024. Kernels run one after another. A matrix
product takes the longer of the time to read its weights and the time to compute. DEVICES has the assumptions about a device; none of its
figures is measured.
"""
import dataclasses

LAYERS, HIDDEN, MLP, HEADS, KV_HEADS, HEAD, VOCAB = 80, 8192, 28672, 64, 8, 128, 128256
LAYER_WEIGHTS = HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD + HEADS * HEAD * HIDDEN + 3 * HIDDEN * MLP
KV_BYTES = 2 * KV_HEADS * HEAD * LAYERS  # bytes per token, FP8
MEAN_TOKENS, FULL_TOKENS = 1024 + 512, 2048
SEQUENCES = (1, 8, 64, 256)


@dataclasses.dataclass
class Device:
    name: str
    weights: str
    weight_bytes: float  # bytes per weight of a layer, including scales
    copy: float          # bytes a second
    products: tuple      # fractions of `copy` that products reach with up to 8 rows, 64 and 256
    flops: float         # FLOP per second of products with 256 rows and more
    head_bytes: float    # bytes per weight of the head
    launches: int        # kernels per layer
    gap_us: float        # gap between two kernels of a graph
    small_us: float      # norms, rope, activations and packing in a layer, for few rows
    row_us: float        # the same for each further row
    host_ms: tuple       # time between two steps: sampling, results, the next plan
    prefill: float       # FLOP per second of prefill, including attention
    memory: float        # bytes for weights and cache


DEVICES = [
    Device("H200", "FP8", 1, 4.3e12, (0.87, 0.81, 0.81), 950e12, 2, 10, 0.6, 8.5, 0.075, (0.65, 0.65, 0.8, 1.2), 1070e12, 0.96 * 141e9),
    Device("B200", "NVFP4", 0.5625, 7.2e12, (0.88, 0.85, 0.8), 2600e12, 2, 15, 0.6, 18, 0.035, (0.65, 0.65, 0.8, 1.2), 3400e12, 0.92 * 180e9),
    Device("GB10", "FP8", 1, 235e9, (0.92, 0.9, 0.85), 110e12, 2, 10, 1.0, 17, 1.4, (1, 1, 1.5, 3), 62e12, 107e9),
    Device("GB10", "NVFP4", 0.5625, 235e9, (0.92, 0.9, 0.85), 200e12, 2, 15, 1.0, 28, 1.55, (1, 1, 1.5, 3), 110e12, 107e9),
]
ATTENTION = 0.8           # fraction of `copy` that attention reaches
ATTENTION_LEAST_US = 6    # minimum per layer


def parts(device, c):
    """Names and milliseconds."""
    weights = LAYERS * LAYER_WEIGHTS
    rate = device.copy * device.products[0 if c <= 8 else 1 if c <= 64 else 2]
    head = VOCAB * HIDDEN
    return {
        "products": 1e3 * max(weights * device.weight_bytes / rate, 2 * weights * c / device.flops),
        "head, BF16": 1e3 * max(head * device.head_bytes / device.copy, 2 * head * c / (0.7 * device.flops)),
        "attention": max(1e3 * c * MEAN_TOKENS * KV_BYTES / (ATTENTION * device.copy), 1e-3 * LAYERS * ATTENTION_LEAST_US),
        "norm, rope, convert, silu": 1e-3 * LAYERS * (device.small_us + device.row_us * c),
        "gaps between kernels": 1e-3 * LAYERS * device.launches * device.gap_us,
        "draw, host between steps": device.host_ms[SEQUENCES.index(c)],
        "prompts": 1e3 * c * 2 * weights / device.prefill,
    }


@dataclasses.dataclass
class Links:
    name: str
    device: Device
    ranks: int
    rate: float          # bytes per second into a device
    exchange_us: float   # time until the last flag has arrived, without the transfer of the bytes
    join_us: float       # time of a kernel that joins columns, including its launch
    exchanges: int       # per layer


# Ranks gather heads before the conversion, which is therefore a separate launch.
SHARED = dataclasses.replace(DEVICES[0], launches=11, small_us=10, row_us=0.08)
LINKS = [
    Links("8 H200, FP8, by NCCL, launched", SHARED, 8, 450e9, 10, 2.5, 4),
    Links("8 H200, FP8, by stores into peers, replayed", SHARED, 8, 450e9, 3.5, 0, 4),
]
SHARED_NORMS = 0.5  # fraction of the time of norms, rope, conversions and activations that every rank spends on whole rows


def parts_of_ranks(links, c):
    """The same for ranks that share layers. They exchange F32 deltas, BF16 heads and E4M3 rows of the MLP."""
    alone = parts(links.device, c)
    token = LAYERS * (2 * 4 * HIDDEN + 2 * HEADS * HEAD + MLP) * (links.ranks - 1) / links.ranks
    exchanges = LAYERS * links.exchanges + 2
    kernels = LAYERS * (links.device.launches + (2 if links.join_us else 1) * links.exchanges)
    divided = {name: alone[name] / links.ranks for name in ("products", "head, BF16", "attention")}
    divided["attention"] = max(divided["attention"], 1e-3 * LAYERS * ATTENTION_LEAST_US)
    return {
        **divided,
        "norm, rope, convert, silu": alone["norm, rope, convert, silu"] * (SHARED_NORMS + (1 - SHARED_NORMS) / links.ranks),
        "exchanges: flags and latency": 1e-3 * exchanges * links.exchange_us,
        "exchanges: bytes": 1e3 * c * token / links.rate,
        "joining columns": 1e-3 * exchanges * links.join_us * (c > 1),
        "gaps between kernels": 1e-3 * kernels * links.device.gap_us,
        "draw, host between steps": alone["draw, host between steps"],
        "prompts": alone["prompts"] / links.ranks + 1e3 * c * token / links.rate,
    }

def table_of_ranks(links):
    columns = {c: parts_of_ranks(links, c) for c in SEQUENCES}
    lines = ["| %s: ms per step, by number of sequences | %s |" % (links.name, " | ".join(map(str, SEQUENCES))), "|---" * 5 + "|"]
    for name in columns[1]:
        lines.append("| %s | %s |" % (name, " | ".join("%.1f" % columns[c][name] for c in SEQUENCES)))
    lines.append("| step without prompts | %s |" % " | ".join("%.1f" % (sum(columns[c].values()) - columns[c]["prompts"]) for c in SEQUENCES))
    lines.append("| output tokens/s | %s |" % " | ".join("%d" % round(1e3 * c / sum(columns[c].values())) for c in SEQUENCES))
    return "\n".join(lines)


def table(device):
    fits = [c for c in SEQUENCES if LAYERS * LAYER_WEIGHTS * device.weight_bytes + VOCAB * HIDDEN * 4 + c * FULL_TOKENS * KV_BYTES <= device.memory]
    columns = {c: parts(device, c) for c in SEQUENCES}
    lines = ["| %s, %s: ms per step, by number of sequences | %s |" % (device.name, device.weights, " | ".join(map(str, SEQUENCES))), "|---" * 5 + "|"]
    for name in columns[1]:
        lines.append("| %s | %s |" % (name, " | ".join("%.1f" % columns[c][name] for c in SEQUENCES)))
    lines.append("| output tokens/s | %s |" % " | ".join(
        "%s%s" % (round(1e3 * c / sum(columns[c].values()), 1 if device.copy < 1e12 else None), "" if c in fits else "*") for c in SEQUENCES))
    return "\n".join(lines)


def main():
    print("\n\n".join([*(table(device) for device in DEVICES), *(table_of_ranks(links) for links in LINKS)]))


if __name__ == "__main__":
    main()
