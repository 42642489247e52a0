#!/usr/bin/env python3
"""Prints a Markdown table of the instructions in the inner multiplication loops of the kernels compiled for aarch64.

Usage: tools/arm_loops.py [FOLDER]    a build of the preset arm, by default build/arm. Exits with 1 if a set of kernels has no such loop.
Without an Arm machine to measure on, this is the only measure of speed: multiply-adds per issued instruction. It does not include waits for
memory and for results.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OBJDUMP = "aarch64-linux-gnu-objdump"
SETS = {"neon": "fmla", "neon_dotprod": "sdot", "neon_bf16": "bfmmla"}  # set of kernels: an instruction that its loops must have
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
BRANCH = re.compile(r"b\..*|b|bl|blr|br|ret|cbn?z|tbn?z")
# Multiply-adds of one instruction on full 128-bit registers.
PRODUCTS = {"fmla": 4, "bfdot": 8, "sdot": 16, "bfmmla": 16, "smmla": 32}
MIN_PRODUCTS = 4  # minimum number in a loop; smaller loops are ignored


def functions(listing):
    """The instructions of each function: (address, mnemonic, operands)."""
    found = []
    for line in listing.splitlines():
        if FUNCTION.match(line):
            found.append([])
        elif found and (match := INSTRUCTION.match(line)):
            found[-1].append((int(match[1], 16), match[2], match[3]))
    return found


def inner_loops(instructions):
    """The loops that contain no other branch, as lists of instructions."""
    place = {address: i for i, (address, _, _) in enumerate(instructions)}
    last_branch = -1
    for i, (address, mnemonic, operands) in enumerate(instructions):
        if not BRANCH.fullmatch(mnemonic):
            continue
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if target and int(target[1], 16) <= address and place.get(int(target[1], 16), -1) > last_branch:
            yield instructions[place[int(target[1], 16)]:i + 1]
        last_branch = i


def loops_of(path):
    """For each loop with multiplications: (kind of product, multiply-adds, instructions, loads, stores of vectors to the stack)."""
    listing = subprocess.run([OBJDUMP, "--disassemble", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    for instructions in functions(listing):
        for body in inner_loops(instructions):
            kinds = [m for _, m, o in body if m in PRODUCTS and not (m == "fmla" and ".4s" not in o)]
            if len(kinds) >= MIN_PRODUCTS and len(set(kinds)) == 1:
                loads = sum(m.startswith("ld") for _, m, _ in body)
                stack = sum(m.startswith("st") and re.match(r"q\d+,.*\[sp", o) is not None for _, m, o in body)
                yield kinds[0], len(kinds) * PRODUCTS[kinds[0]], len(body), loads, stack


def main(words):
    folder = pathlib.Path(words[0]) if words else ROOT / "build" / "arm"
    print("| kernels | source | product | loops | multiply-adds per instruction | the best loop: instructions, products and loads; stores to the stack |")
    print("|---|---|---|--:|--:|---|")
    missing = []
    for name, expected in SETS.items():
        seen = set()
        for path in sorted(folder.glob("src/kernels/CMakeFiles/sluice_kernels_%s.dir/cpu/*/*.o" % name)):
            found = {}
            for kind, *rest in loops_of(path):
                found.setdefault(kind, []).append(rest)
            for kind, loops in sorted(found.items()):
                seen.add(kind)
                rates = [products / size for products, size, _, _ in loops]
                products, size, loads, stack = loops[rates.index(max(rates))]
                print("| `%s` | %s/%s | `%s` | %d | %.1f to %.1f | %d, %d and %d; %d |" % (
                    name, path.parent.name, path.name.removesuffix(".cc.o"), kind, len(loops), min(rates), max(rates), size,
                    products // PRODUCTS[kind], loads, stack))
        if expected not in seen:
            missing.append("%s has no loop of %s" % (name, expected))
    for line in missing:
        print("tools/arm_loops.py: %s in %s: expected a build of the preset arm" % (line, folder), file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
