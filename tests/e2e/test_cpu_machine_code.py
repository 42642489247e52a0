"""Checks the machine code of the kernels' inner loops: no vector that a loop changes may be stored on the stack.

Whether a compiler keeps a tile's sums in registers depends on details that tests of results do not detect. Otherwise the kernel loses up
to half of its speed, since each addition then waits for a store. In the loops of AVX2 over narrow codes (SUMS_ALONE), only sums must be in
registers: there, more sums are in flight than fit beside the prepared codes, which is faster than fewer sums.
"""
import re
import shutil
import subprocess

import pytest

from serving import BIN

OBJECTS = sorted((BIN.parent / "src/kernels/CMakeFiles").glob("sluice_kernels_*.dir/cpu/*/*.o"))
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(?:\{e?vex\} )?(\S+)\s*(.*)$")
PRODUCT = re.compile(r"vpdpbusd|vdpbf16ps|vpmaddwd|vfn?m(add|sub)")
# A store to a slot of the stack frame: the address has no index register, unlike stores to arrays.
STORE = re.compile(r"%([xyz])mm\d+,-?(?:0x[0-9a-f]+)?\((%rsp|%rbp)\)(?:\{%k\d\})?")
SUMS_ALONE = re.compile(r"AddCodes<sluice::kernels::avx2::")
MIN_PRODUCTS = 4  # minimum number in a loop; smaller loops are ignored


def functions(listing):
    """The instructions of each function: (address, mnemonic, operands)."""
    name, found = None, {}
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            name = match[1]
            found[name] = []
        elif name and (match := INSTRUCTION.match(line)):
            found[name].append((int(match[1], 16), match[2], match[3]))
    return found


def inner_loops(instructions):
    """Loops that contain no jumps except jumps out of the loop, as (begin, end, whether there is such a jump). These are the loops of a
    tile over its inputs."""
    place = {address: i for i, (address, _, _) in enumerate(instructions)}
    jumps = []  # address and target of each jump; None if the target is unknown
    for i, (_, mnemonic, operands) in enumerate(instructions):
        if mnemonic.startswith(("j", "call")):
            match = re.match(r"([0-9a-f]+)\b", operands)
            jumps.append((i, place.get(int(match[1], 16)) if match else None, mnemonic))
    loops = []
    for n, (end, begin, _) in enumerate(jumps):
        if begin is None or begin > end:
            continue
        within = [jump for jump in jumps[:n] if jump[0] >= begin]
        if all(target is not None and not begin <= target <= end and not mnemonic.startswith("call")
               for _, target, mnemonic in within):
            loops.append((begin, end, bool(within)))
    return loops


def is_sum(body, place):
    """Whether the vector that instruction `place` of a loop stores was last written by a product, also of the loop's previous pass."""
    register = re.match(r"%[xyz](mm\d+),", body[place][2])[1]
    for _, mnemonic, operands in reversed(body[place + 1:] + body[:place]):
        match = re.search(r"%[xyz](mm\d+)(?:\{[^}]*\})*$", operands)
        if match and match[1] == register:
            if mnemonic in ("vmovaps", "vmovdqa", "vmovdqa64") and (source := re.match(r"%[xyz](mm\d+),", operands)):
                register = source[1]
                continue
            return bool(PRODUCT.match(mnemonic))
    return True  # not written in the loop: better one store too many


def spills(listing):
    """(number of loops checked, [(function, number of stores, first store)] of loops that store vectors on the stack).

    Constants that are only read from the stack cost almost nothing.
    """
    seen, found = 0, []
    for name, instructions in functions(listing).items():
        # In functions without a frame, rbp is an ordinary register.
        has_frame = any(m == "mov" and o == "%rsp,%rbp" for _, m, o in instructions)
        for begin, end, has_way_out in inner_loops(instructions):
            body = instructions[begin:end + 1]
            products = [o for _, m, o in body if PRODUCT.match(m)]
            if len(products) < MIN_PRODUCTS:
                continue
            # A loop with an early exit may be a loop over tiles, which moves vectors that are not
            # sums.
            widths = set(re.findall(r"%([xyz])mm", " ".join(products))) if has_way_out else set("xyz")
            seen += 1
            stores = [f"{m} {o}" for i, (_, m, o) in enumerate(body)
                      if (match := STORE.fullmatch(o)) and m.startswith("vmov") and match[1] in widths
                      and (match[2] == "%rsp" or has_frame) and (is_sum(body, i) or not SUMS_ALONE.search(name))]
            if stores:
                found.append((name, len(stores), stores[0]))
    return seen, found


CLEAN = """
0000000000000000 <Tile>:
   0:	vmovdqa64 %zmm1,0x40(%rsp)
   8:	vpbroadcastd (%rdx,%rcx,4),%zmm4
  10:	vpdpbusd %zmm4,%zmm3,%zmm9
  18:	vpdpbusd %zmm4,%zmm2,%zmm8
  20:	vpdpbusd %zmm4,%zmm1,%zmm7
  28:	vpdpbusd %zmm4,%zmm0,%zmm6
  30:	jg     8 <Tile+0x8>
  38:	vmovdqa64 0x40(%rsp),%zmm1
  40:	ret
"""


def test_finds_the_spills_of_a_listing():
    assert spills(CLEAN) == (1, [])
    with_access = "  2c:\t{}\n  30:"
    for access in ("vmovdqa64 %zmm9,0x180(%rsp)", "vmovaps %ymm9,(%rsp)"):
        assert spills(CLEAN.replace("  30:", with_access.format(access))) == (1, [("Tile", 1, access)]), access
    # These accesses are not spills: reading a constant, an array on the stack, and rbp as an
    # ordinary register.
    for access in ("vpxord 0x40(%rsp),%zmm5,%zmm5", "vmovaps %zmm5,0x40(%rsp,%rax,4)", "vmovdqu64 %zmm5,0x40(%rbp)"):
        assert spills(CLEAN.replace("  30:", with_access.format(access))) == (1, []), access
    # In loops of AVX2 over codes, a vector that no product wrote may be stored; a copy of a sum may not.
    codes = CLEAN.replace("<Tile", "<AddCodes<sluice::kernels::avx2::Codes")
    prepared = with_access.format("vmovdqa64 %zmm4,(%rsp)")
    assert spills(CLEAN.replace("  30:", prepared))[1]
    assert spills(codes.replace("  30:", prepared)) == (1, [])
    assert spills(codes.replace("  30:", with_access.format("vmovaps %zmm7,(%rsp)")))[1]
    assert spills(codes.replace("  30:", "  2a:\tvmovaps %zmm7,%zmm4\n" + with_access.format("vmovaps %zmm4,(%rsp)")))[1]
    # A jump out of the loop and back does not end the loop.
    left = CLEAN.replace("  28:", "  26:\tjne    48 <Tile+0x48>\n  28:").replace("  40:\tret", "  40:\tret\n  48:\tjmp    30 <Tile+0x30>")
    assert spills(left) == (1, [])
    assert spills(left.replace("  28:", "  27:\tvmovaps %zmm9,(%rsp)\n  28:"))[1]
    assert spills(left.replace("  28:", "  27:\tvmovdqa %xmm9,(%rsp)\n  28:")) == (1, [])
    framed = CLEAN.replace("   0:", "   0:\tmov    %rsp,%rbp\n   4:")
    assert spills(framed.replace("  30:", with_access.format("vmovaps %ymm5,-0x70(%rbp)")))[1]


@pytest.mark.skipif(not OBJECTS, reason="the kernels' objects are not beside the program")
@pytest.mark.skipif(not shutil.which("objdump"), reason="no objdump")
def test_inner_loops_keep_their_vectors_in_registers():
    looked_at, found = {}, []
    for path in OBJECTS:
        listing = subprocess.run(["objdump", "--disassemble", "--no-show-raw-insn", "--demangle", path],
                                 check=True, capture_output=True, text=True).stdout
        isa = path.parents[2].name.removeprefix("sluice_kernels_").removesuffix(".dir")
        seen, spilled = spills(listing)
        looked_at[isa] = looked_at.get(isa, 0) + seen
        found += [f"{isa} {path.name} {name}: {count}, the first {first}" for name, count, first in spilled]
    assert not found, "\n".join(found)
    # Require a minimum number of loops: if names of instructions or files change, the test would
    # otherwise check nothing.
    for isa in ("avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16"):
        assert looked_at.get(isa, 0) >= 10, looked_at
