#!/usr/bin/env python3
"""Packs code objects for several AMD GPUs into one file in the format of Clang's offload bundler, which HIP and src/device/hip_modules.cc
read.

Usage: tools/hip_bundle.py OUT gfx942=FILE gfx950=FILE...
"""
import pathlib
import struct
import sys

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
HOST = b"host-x86_64-unknown-linux-gnu"
DEVICE = b"hipv4-amdgcn-amd-amdhsa--"
# HIP's runtime maps code objects directly from the file.
ALIGNMENT = 4096


def bundle(codes):
    """codes: (architecture, bytes) pairs. Adds an empty first entry for the host, as Clang does."""
    entries = [(HOST, b"")] + [(DEVICE + name.encode(), code) for name, code in codes]
    at = len(MAGIC) + 8 + sum(24 + len(name) for name, _ in entries)
    header = MAGIC + struct.pack("<Q", len(entries))
    body = b""
    for name, code in entries:
        padding = -(at + len(body)) % ALIGNMENT if code else 0
        body += bytes(padding)
        header += struct.pack("<QQQ", at + len(body), len(code), len(name)) + name
        body += code
    return header + body


def main():
    codes = [argument.partition("=")[::2] for argument in sys.argv[2:]]
    pathlib.Path(sys.argv[1]).write_bytes(bundle([(name, pathlib.Path(file).read_bytes()) for name, file in codes]))


if __name__ == "__main__":
    main()
