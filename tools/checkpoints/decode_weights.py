#!/usr/bin/env python3
"""Decodes every weight of a quantized checkpoint with NumPy and writes a checksum of each: the reference for tests of the schemes.

    decode_weights.py CHECKPOINT > tests/data/schemes/NAME.json        # needs NumPy

Reads one model.safetensors, or shards. Independent of the program: a weight's format is derived from the names and types of its tensors,
not from the configuration, and codes are decoded with tables, not with bit arithmetic. A value is code * scale * second scale in
float32, in that order. A checksum is the CRC-32 of the little-endian float32 values of the matrix [out, in]. Each expert in a joint
tensor has its own, "module#expert".
"""
import json
import pathlib
import struct
import sys
import zlib

import numpy as np

F32 = np.float32


def e4m3_table():
    table = []
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        value = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7)
        if code & 0x7F == 0x7F:
            value = np.nan
        table.append(-value if code & 0x80 else value)
    return np.array(table, F32)


E4M3 = e4m3_table()
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], F32)
E8M0 = np.array([2.0**(b - 127) for b in range(255)] + [np.nan], F32)


def load(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        data = path.read_bytes()
        (size, ) = struct.unpack("<Q", data[:8])
        for name, info in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = info["data_offsets"]
                tensors[name] = (info["dtype"], info["shape"], data[8 + size + begin:8 + size + end])
    return tensors


def floats(tensor):
    dtype, shape, data = tensor
    if dtype == "F32":
        return np.frombuffer(data, "<f4").reshape(shape)
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(F32).reshape(shape)
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(F32).reshape(shape)
    if dtype == "F8_E4M3":
        return E4M3[np.frombuffer(data, np.uint8)].reshape(shape)
    if dtype == "I8":
        return np.frombuffer(data, np.int8).astype(F32).reshape(shape)
    raise SystemExit("no numbers in " + dtype)


def decode(codes, scale, second, divides):
    """Decodes a matrix. codes: a tensor [out, in], or [out, in / 2] bytes of two codes each; scale: a tensor or None."""
    if codes[0] != "U8" and scale is None:
        return floats(codes)
    if codes[0] == "U8":
        data = np.frombuffer(codes[2], np.uint8).reshape(codes[1])
        values = np.stack([E2M1[data & 15], E2M1[data >> 4]], -1).reshape(data.shape[0], -1)
        factors = E8M0[np.frombuffer(scale[2], np.uint8)].reshape(scale[1]) if scale[0] in ("U8", "F8_E8M0") else floats(scale)
        factors = np.repeat(factors, values.shape[1] // factors.shape[1], 1)
    else:
        values = floats(codes)
        factors = floats(scale)
        if factors.size == 1:
            factors = factors.reshape(1, 1)
        elif factors.size == values.shape[0]:
            factors = factors.reshape(-1, 1)
        else:  # blocks of 128 x 128
            factors = np.repeat(np.repeat(factors, 128, 0), 128, 1)[:values.shape[0], :values.shape[1]]
    result = values * factors
    if second is not None:
        factor = floats(second).reshape(-1)[0]
        result = result * (F32(1) / factor if divides else factor)
    return result.astype(F32)


def check_sum(values):
    return "%08x" % zlib.crc32(np.ascontiguousarray(values, "<f4").tobytes())


def turned(tensor, expert):
    """One expert of [experts, in, out] as [out, in]. The two codes of a byte stay together: they are adjacent along the input."""
    dtype, shape, data = tensor
    width = {"F32": "<u4", "BF16": "<u2", "F16": "<u2"}.get(dtype, np.uint8)
    part = np.ascontiguousarray(np.frombuffer(data, width).reshape(shape)[expert].T)
    return dtype, list(part.shape), part.tobytes()


def main():
    tensors = load(sys.argv[1])
    sums = {}
    for name, tensor in sorted(tensors.items()):
        if len(tensor[1]) == 3 and name.endswith(("gate_up_proj", "down_proj")):
            scale, second = tensors.get(name + "_weight_scale"), tensors.get(name + "_weight_scale_2")
            for expert in range(tensor[1][0]):
                own = turned(scale, expert) if scale is not None and len(scale[1]) == 3 else scale
                values = decode(turned(tensor, expert), own, second, False)
                sums["%s#%d" % (name, expert)] = {"shape": list(values.shape), "crc32": check_sum(values)}
            continue
        if not name.endswith((".weight", ".weight_packed")) or len(tensor[1]) != 2:
            continue
        module = name.rsplit(".", 1)[0]
        scale = tensors.get(module + ".weight_scale", tensors.get(module + ".weight_scale_inv"))
        divisor = tensors.get(module + ".weight_global_scale")
        second = divisor if divisor is not None else tensors.get(module + ".weight_scale_2")
        values = decode(tensor, scale, second, divisor is not None)
        sums[module] = {"shape": list(values.shape), "crc32": check_sum(values)}
    sums = {name: entry for name, entry in sums.items() if not name.startswith(("vision_model", "multi_modal"))}
    print("{\n" + ",\n".join(json.dumps(name) + ": " + json.dumps(entry) for name, entry in sums.items()) + "\n}")


if __name__ == "__main__":
    main()
