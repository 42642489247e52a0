#!/usr/bin/env python3
"""Writes tests/data/activations/rounded_rows.json: rows of numbers and their values after rounding to each activation format.

    make_rounded_rows.py tests/data/activations/rounded_rows.json        # needs NumPy

Independent of the program's arithmetic: rounding searches a table of all numbers of the format for the nearest one.
Divisions and products are in float32. Numbers are written as the eight hexadecimal digits of their float32 bits.
"""
import json

import numpy as np
from arguments import arguments

F32 = np.float32
COLS = 160


def e4m3_values():
    values = []
    for code in range(0x7F):
        exponent, mantissa = code >> 3, code & 7
        values.append(mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7))
    return np.array(values)


E4M3 = e4m3_values()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest(x, table):
    """The entry of the table nearest to |x|, with the sign of x; on a tie, the one with the even code."""
    distance = np.abs(np.abs(np.asarray(x, np.float64))[..., None] - table)
    best = distance.argmin(-1)
    second = np.minimum(best + 1, len(table) - 1)
    tied = np.take_along_axis(distance, best[..., None], -1) == np.take_along_axis(distance, second[..., None], -1)
    code = np.where(tied[..., 0] & (best % 2 == 1), second, best)
    return np.copysign(table[code], x).astype(F32)


def scale_of(amax, top):
    scale = F32(amax) / F32(top)
    return F32(1) if scale == 0 else scale


def fp8(x, scale):
    return nearest(x / scale, E4M3) * scale


def fp8_static(row, scale):
    return fp8(row, F32(scale))


def fp8_per_token(row):
    return fp8(row, scale_of(np.abs(row).max(), 448))


def groups(row, size):
    return [row[i:i + size] for i in range(0, len(row), size)]


def fp8_per_group(row, size):
    return np.concatenate([fp8_per_token(group) for group in groups(row, size)])


def nvfp4(row, global_scale):
    global_scale, out = F32(global_scale), []
    for group in groups(row, 16):
        scale = nearest(np.abs(group).max() / F32(6) / global_scale, E4M3) * global_scale
        out.append(np.zeros_like(group) if scale == 0 else nearest(group / scale, E2M1) * scale)
    return np.concatenate(out)


def mxfp4(row):
    out = []
    for group in groups(row, 32):
        amax = np.float64(np.abs(group).max())
        if amax < 2.0**-126:
            exponent = -127
        else:
            fraction, exponent = np.frexp(amax)  # amax = fraction * 2^exponent, fraction in [0.5, 1)
            exponent = int(exponent) - 1 + (1 if fraction >= 0.875 else 0) - 2
        scale = F32(2.0**max(exponent, -127))
        out.append(nearest(group / scale, E2M1) * scale)
    return np.concatenate(out)


def int8(row):
    scale = scale_of(np.abs(row).max(), 127)
    return np.clip(np.rint(row / scale), -127, 127).astype(np.int8), scale


def rows():
    random = np.random.default_rng(7)
    made = [random.standard_normal(COLS) * 10.0**power for power in (-3, 0, 0, 2)]
    made.append(random.standard_normal(COLS) * np.exp(2 * random.standard_normal(COLS)))  # a few large numbers
    made.append(np.zeros(COLS))
    made.append(random.standard_normal(COLS) * 1e-41)
    ties = np.concatenate([(E4M3[:-1] + E4M3[1:]) / 2, [7.0, -7.0, 448, -448, 449, -1000, 464, 1e9, 0.0, -0.0, 2.0**-10, -3 * 2.0**-10]])
    made.append(np.resize(ties, COLS))
    halves = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, 0.2500001, 1.2499999, -0.25, -2.5, -5, -0.0, 7, -6.5])
    made.append(np.resize(halves, COLS))
    # The largest number of each group is near a value at which the MXFP4 scale changes.
    made.append(np.concatenate([random.uniform(-1, 1, 32) * top for top in (1.7499999, 1.75, 3.5, 7.9, 0.4374)]))
    for i, top in enumerate((1.7499999, 1.75, 3.5, 7.9, 0.4374)):
        made[-1][32 * i] = top
    mixed = random.standard_normal(COLS)
    mixed[32:64] = 0
    mixed[64:96] *= 1e-30
    mixed[96:112] *= 1e4
    made.append(mixed)
    made.append(random.integers(-254, 255, COLS) / 2)  # multiples of 1/2, for INT8
    made[-1][0] = 127
    return [row.astype(F32) for row in made]


def words(row):
    return "".join("%08x" % bits for bits in row.astype(F32).view(np.uint32))


def main():
    target = arguments(__doc__)[0]
    data = rows()
    cases = []

    def add(kind, group_size, input_scale, function):
        cases.append({"kind": kind, "group_size": group_size, "input_scale": float(F32(input_scale)),
                      "rows": [words(function(row)) for row in data]})

    with np.errstate(over="ignore", under="ignore"):
        for scale in (1.0, 0.0173):
            add("fp8_static", 0, scale, lambda row, scale=scale: fp8_static(row, scale))
        add("fp8_per_token", 0, 1, fp8_per_token)
        for size in (128, 32):
            add("fp8_per_group", size, 1, lambda row, size=size: fp8_per_group(row, size))
        for scale in (1.0, 3.2 / 2688, 5000 / 2688):
            add("nvfp4", 16, scale, lambda row, scale=scale: nvfp4(row, scale))
        add("mxfp4", 32, 1, mxfp4)
        integers = [int8(row) for row in data]
    out = {"cols": COLS, "rows": [words(row) for row in data], "rounded": cases,
           "int8": [{"values": values.tolist(), "scale": words(np.array([scale]))} for values, scale in integers]}
    with open(target, "w") as file:
        json.dump(out, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
