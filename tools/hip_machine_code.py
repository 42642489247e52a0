#!/usr/bin/env python3
"""Checks the machine code of the kernels for AMD GPUs: no scratch memory (vector registers may spill to matrix registers), matrix
instructions in products, products and sums rounded separately where tokens are sampled, no undefined symbols. Needs LLVM's
llvm-readelf and llvm-objdump.

Usage: tools/hip_machine_code.py FOLDER [--tools FOLDER]    FOLDER has the code objects NAME.ARCHITECTURE.co: build/hip-kernels
(of tools/hip_kernels.sh), or the folder hip of a build
Prints each fault on a line and exits with 1 if there is one.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ARCHITECTURES = ["gfx942", "gfx950"]
# Registers of a lane: 256 for vector instructions, and 256 for matrix instructions.
MOST_REGISTERS = 512
# Formats of linear_formats.h whose inputs are E4M3 codes. A GPU with this kind of FP8 multiplies the codes directly.
FP8_INPUTS = 2
# Instructions that fuse a product and a sum; a division takes five.
FUSED = re.compile(r"v_(pk_)?(fma|fmac|fmaak|fmamk|mad|mac)_f(32|64|16)")
FUSED_OF_A_DIVISION = 5
# Maximum bytes of scratch memory, for kernels that need some (docs/hip.md): FP8 weights expanded to BF16, for 64 rows; on gfx942
# also FP8 times FP8, computed in F16, for 64 rows and more.
SCRATCH = {architecture: {"LinearTileKernelILNS1_6FormatE1ELi64E": 64} for architecture in ARCHITECTURES}
SCRATCH["gfx942"].update({"LinearTileKernelILNS1_6FormatE2ELi64E": 640, "LinearTileKernelILNS1_6FormatE2ELi128E": 640})


def output(*argv):
    return subprocess.run([str(word) for word in argv], check=True, stdout=subprocess.PIPE, text=True).stdout


def metadata(tools, code):
    """The kernels in the notes of a code object: {symbol: {"private_segment_fixed_size": 0...}}."""
    kernels, fields = {}, None
    for line in output(tools / "llvm-readelf", "--notes", code).splitlines():
        if re.match(r"  - \.", line):
            fields = {}
        found = re.match(r"  (?:  |- )\.(\w+): +(\S+)$", line)
        if found and fields is not None:
            fields[found[1]] = found[2]
            if found[1] == "name":
                kernels[found[2]] = fields
    return kernels


def instructions(tools, code):
    """The instructions of each kernel: {symbol: Counter}."""
    kernels, counts = {}, None
    for line in output(tools / "llvm-objdump", "-d", "--no-show-raw-insn", code).splitlines():
        start = re.match(r"[0-9a-f]+ <(\S+)>:$", line)
        if start:
            counts = kernels.setdefault(start[1], collections.Counter())
        elif counts is not None and re.match(r"\s+[a-z]", line):
            counts[line.split()[0]] += 1
    return kernels


def planned_product(name, architecture):
    """The matrix instruction that a kernel must have; None: none."""
    if "AttentionKernel" in name:
        return "v_mfma_f32_16x16x16_"
    if "LinearCodesKernel" in name:
        return "v_mfma_scale_f32_16x16x128_f8f6f4" if architecture == "gfx950" else None  # gfx942 never runs it
    found = re.search(r"LinearTileKernelILNS1_6FormatE(\d+)ELi\d+ELb([01])", name)
    if not found:
        return None
    if int(found[1]) == FP8_INPUTS and found[2] == "1":
        return "v_mfma_f32_16x16x32_fp8_fp8" if architecture == "gfx950" else "v_mfma_f32_16x16x16_f16"
    return "v_mfma_f32_16x16x16_bf16"


def faults_of(tools, code):
    architecture = code.name.split(".")[1]
    faults = []
    undefined = re.findall(r" UND (\S+)$", output(tools / "llvm-readelf", "--dyn-syms", "-W", code), re.M)
    if undefined:
        faults.append("%s: needs %s from elsewhere, and nothing has them" % (code.name, ", ".join(undefined)))
    kernels, opcodes = metadata(tools, code), instructions(tools, code)
    for name, fields in kernels.items():
        def expect(field, good, wanted, fields=fields, name=name):
            if not good(int(fields[field])):
                faults.append("%s: %s: %s is %s, expected %s" % (code.name, name, field, fields[field], wanted))

        most = max([most for part, most in SCRATCH[architecture].items() if part in name], default=0)
        expect("private_segment_fixed_size", lambda value, most=most: value <= most, "at most %d" % most)
        expect("group_segment_fixed_size", lambda value: value == 0, "0: shared memory is only what a launch asks for")
        expect("wavefront_size", lambda value: value == 64, "64")
        expect("vgpr_count", lambda value: value <= MOST_REGISTERS, "at most %d" % MOST_REGISTERS)
        product = planned_product(name, architecture)
        if product and not any(opcode.startswith(product) for opcode in opcodes[name]):
            faults.append("%s: %s: expected %s" % (code.name, name, product))
        if "SampleRowsKernel" in name:
            fused = sum(count for opcode, count in opcodes[name].items() if FUSED.match(opcode))
            if fused > FUSED_OF_A_DIVISION:
                faults.append("%s: %s: %d fused products, expected the %d of its division: is -ffp-contract=off missing?"
                              % (code.name, name, fused, FUSED_OF_A_DIVISION))
    return faults, len(kernels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("/usr/lib/llvm-22/bin"))
    arguments = parser.parse_args()
    codes = sorted(arguments.folder.glob("*.co"))
    faults, kernels = [], 0
    for architecture in ARCHITECTURES:
        if not any(code.name.endswith("." + architecture + ".co") for code in codes):
            faults.append("%s: expected code objects for %s" % (arguments.folder, architecture))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found, count in pool.map(lambda code: faults_of(arguments.tools, code), codes):
            faults += found
            kernels += count
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(1)
    print("%d kernels as planned" % kernels)


if __name__ == "__main__":
    main()
