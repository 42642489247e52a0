#!/usr/bin/env python3
"""Compares the machine code of each CUDA kernel with its plan: registers, stack, spills, concurrent blocks, and the instructions that it
must contain. Needs CUDA's cuobjdump and nvdisasm, and c++filt.

Usage: tools/machine_code.py check FOLDER [--tools FOLDER]    FOLDER: a build with CUDA, with the objects *.cu.o
       tools/machine_code.py page FOLDER [--tools FOLDER]     writes docs/cuda-machine-code.md
`check` prints each fault on a line and exits with 1 if there is one. A page that is out of date for a kernel is also a fault. The page
covers all default architectures, so `page` needs a build for all of them.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cuda-machine-code.md"
CUDA_CMAKE = ROOT / "cmake" / "Cuda.cmake"

# Limits of a multiprocessor, by compute capability (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability").
REGISTERS = 65536
REGISTERS_AT_ONCE = 256  # registers are allocated to a warp in multiples of this
MOST_THREADS = {80: 2048, 89: 1536, 90: 2048, 100: 2048, 103: 2048, 110: 1536, 120: 1536, 121: 1536}
WITH_E4M3_MMA = {89, 120, 121}  # architectures with this instruction; others convert to F16 and multiply in F16
# Stack bytes that CUDA's sine and cosine need for large arguments (digits of 2 / pi).
SINE_STACK = 64

# Parameters of linear_tile.h (Tile) and linear_formats.h (Format).
FORMATS = ["bf16", "fp8", "fp8 x fp8", "fp8 blocks", "int8", "int4", "nvfp4", "mxfp4"]
LATENT_DIM = 576  # maximum size of latent vectors (kLatentDim of attention_fragments.h)
SCALED_FORMATS = {"fp8 blocks", "int4", "nvfp4", "mxfp4"}


@dataclasses.dataclass
class Kernel:
    architecture: int
    name: str  # "LinearTileKernel<(Format)2, 64, true>"
    registers: int = 0
    stack: int = 0
    local: int = 0
    opcodes: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # "LDG.E.128": 12

    def has(self, opcode):
        """Whether there is an instruction whose name begins with these parts in this order: "LDG.128" finds LDG.E.128."""
        pattern = re.compile(r"\.(?:.*\.)?".join(map(re.escape, opcode.split("."))) + r"(\.|$)")
        return any(pattern.match(name) for name in self.opcodes)


@dataclasses.dataclass
class Plan:
    threads: int  # per block
    blocks: int  # minimum number that run on a multiprocessor at once, as limited by registers and threads
    instructions: list
    stack: int = 0  # maximum bytes


def rows_plan(threads, *instructions):
    """Plan of a kernel that processes rows. It is memory-bound, so its registers must allow half of a multiprocessor's threads."""
    return Plan(threads, 1024 // threads, list(instructions))


def overlapping(plan):
    """Plan of a kernel that may begin before earlier kernels end (programmatic dependent launch): it must wait for them, and let later
    kernels begin."""
    def of(architecture, arguments):
        made = plan(architecture, arguments)
        return dataclasses.replace(made, instructions=made.instructions + (["ACQBULK", "PREEXIT"] if architecture >= 90 else []))
    return of


def linear_plan(architecture, arguments):
    form, tokens, multiplies_e4m3 = FORMATS[arguments[0]], arguments[1], arguments[2]
    blocks = {128: 1, 64: 2, 32: 4, 16: 5}[tokens] - (tokens <= 32 and form in SCALED_FORMATS)
    product = "QMMA" if form == "fp8 x fp8" and multiplies_e4m3 and architecture in WITH_E4M3_MMA else "HMMA"
    return Plan(256 if tokens == 128 else 128, blocks, ["LDGSTS.128", "LDS", product])


def groups_plan(_, arguments):
    # Two blocks share a multiprocessor, each with half of the shared memory. With several ranges of k, one has enough registers.
    return Plan(288, 1 if arguments[1] else 2, ["UTMALDG.2D", "QGMMA", "SYNCS"])


def attention_plan(architecture, arguments):
    is_e4m3, dim, rows, _ = arguments
    blocks = 2 if dim > 256 else 1 if rows == 64 else 4 if is_e4m3 else 3
    return Plan(128, blocks, ["LDGSTS.128", "LDSM", "HMMA"])


# The plan of each kernel. A kernel without a plan, and a plan without a kernel, are errors.
PLANS = {
    "LinearTileKernel": overlapping(linear_plan),
    "LinearGroupsKernel": overlapping(groups_plan),
    "AttentionKernel": overlapping(attention_plan),
    "MergeKernel": overlapping(lambda *_: Plan(128, 4, ["LDG.64"])),  # a thread loads several partial results at once
    # arguments[0]: maximum number of vectors of a row that a thread keeps in registers; 0: none.
    "RmsNormKernel": overlapping(lambda _, arguments: Plan(512, 2 if arguments[0] < 4 else 1, ["LDG.128", "STG.128"])),
    "LayerNormKernel": lambda *_: Plan(512, 2, ["LDG.128", "STG.128"]),
    "ActivateKernel": lambda *_: rows_plan(256, "LDG.128", "STG.128"),
    "AddEmbeddingsKernel": lambda *_: rows_plan(256, "LDG.128", "STG.128"),
    "SiluMulKernel": overlapping(lambda *_: rows_plan(256, "LDG.128", "STG.128", "STG.64")),
    "ClampedSwigluKernel": lambda *_: rows_plan(256, "LDG.128", "STG.128", "STG.64"),
    "ConvertRowsKernel": overlapping(lambda *_: rows_plan(256, "LDG.128", "STG.128", "STG.64")),
    "EmbeddingKernel": lambda *_: rows_plan(256, "LDG.128", "STG.128"),
    "LayerEmbeddingsKernel": lambda *_: rows_plan(128, "LDG.128", "STG.128"),
    "CapLogitsKernel": lambda *_: rows_plan(256, "LDG.128", "STG.128"),
    "GatherRowsKernel": lambda *_: rows_plan(256, "LDG.128", "STG.128"),
    "CombineExpertsKernel": lambda *_: rows_plan(256, "LDG.128", "STG.128"),
    # A thread keeps the sums of four rows and four ranks, or four rows and eight columns, in registers.
    "LoraShrinkKernel": lambda *_: Plan(256, 2, ["LDG.128", "SHFL"]),
    "LoraLookupKernel": lambda *_: rows_plan(64),
    "LoraExpandKernel": lambda *_: Plan(64, 12, ["LDG.128", "STG.128"]),
    "ScaleResultsKernel": overlapping(lambda *_: rows_plan(256, "LDG.128", "STG.128")),
    "RopeAppendKernel": overlapping(lambda *_: rows_plan(128, "LDG.128", "STG.128", "STG.64")),
    "LatentAppendKernel": lambda *_: rows_plan(128, "LDG.128", "STG.128", "SHFL"),
    # Operands come from global memory, so several blocks must hide its latency.
    "HeadProductsKernel": lambda *_: Plan(128, 6, ["HMMA", "LDG"]),
    "HeadTailsKernel": lambda *_: rows_plan(128),
    "IndexAppendKernel": lambda *_: rows_plan(128, "SHFL"),
    # Keys are in shared memory, queries in global memory.
    "IndexScoresKernel": lambda *_: Plan(128, 6, ["HMMA", "LDSM", "LDG"]),
    "SelectPositionsKernel": lambda *_: Plan(512, 2, []),
    "ConvolveKernel": lambda *_: rows_plan(128),
    "ConvolveTailsKernel": lambda *_: rows_plan(128),
    # A lane keeps up to 64 numbers of the state in registers.
    "UpdateStateKernel": lambda _, arguments: Plan(128, 2 if arguments == [64, True] else 3, ["LDS.128", "SHFL"]),
    "GateStatesKernel": lambda *_: rows_plan(128, "SHFL"),
    "GateRowsKernel": lambda *_: rows_plan(128),
    "HeadSquaresKernel": lambda *_: rows_plan(128, "LDG.128", "SHFL"),
    "RopeTableKernel": lambda *_: dataclasses.replace(rows_plan(128), stack=SINE_STACK),
    "ExpandWeightsKernel": lambda *_: rows_plan(256, "STG.128"),
    "PackNvF4Kernel": overlapping(lambda *_: rows_plan(256, "LDG.128")),
    "PackMxF4Kernel": overlapping(lambda *_: rows_plan(256, "LDG.128", "STG.128")),
    "TakeRowsKernel": lambda *_: rows_plan(128, "LDG.128", "STG.128"),
    "TakeColumnsKernel": lambda *_: rows_plan(128, "STG.128"),
    "JoinColumnsKernel": lambda *_: rows_plan(256),
    "ExchangeColumnsKernel": lambda _, arguments: rows_plan(256, *(["LDG.128", "STG.128"] if arguments == ["uint4"] else [])),
    "PlaceRowsKernel": lambda *_: rows_plan(128, "LDG.128", "STG.128"),
    "StandardizeKernel": lambda *_: rows_plan(128, "LDG.128", "STG.128"),
    "MergePatchesKernel": lambda *_: rows_plan(128),
    "RouterLogitsKernel": lambda *_: Plan(256, 3, []),
    "RouterChoiceKernel": lambda *_: rows_plan(128, "SHFL"),
    "GroupByExpertKernel": lambda *_: Plan(512, 1, []),
    "SampleRowsKernel": lambda *_: Plan(1024, 1, []),
    "RandomCodesKernel": lambda *_: rows_plan(256),
    "RandomScalesKernel": lambda *_: rows_plan(256),
    # For the self-test: kernels with one instruction each.
    "MmaBf16Kernel": lambda *_: Plan(32, 1, ["HMMA"]),
    "MmaF16Kernel": lambda *_: Plan(32, 1, ["HMMA"]),
    "MmaE4m3Kernel": lambda arch, _: Plan(32, 1, ["QMMA"] if arch in WITH_E4M3_MMA else ["HMMA"] if arch >= 90 else []),
    "LoadMatrixKernel": lambda *_: Plan(32, 1, ["LDSM"]),
    "AsyncCopyKernel": lambda *_: Plan(128, 1, ["LDGSTS.128"]),
    "DecodeKernel": lambda *_: Plan(32, 1, []),
    "EncodeKernel": lambda *_: Plan(32, 1, []),
    "HalvesKernel": lambda *_: Plan(32, 1, []),
    "WarpKernel": lambda *_: Plan(32, 1, ["SHFL"]),
    "MathKernel": lambda *_: Plan(32, 1, ["MUFU"], stack=SINE_STACK),
}


def argument(text):
    text = re.sub(r"^\([^)]*\)", "", text.strip())  # a value's enumeration type
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def split_name(name):
    """Splits a kernel's name: ("LinearTileKernel", [2, 64, True])."""
    base, _, rest = name.partition("<")
    return base, [argument(text) for text in rest.rstrip(">").split(",")] if rest else []


def display_name(name):
    base, arguments = split_name(name)
    if base == "LinearTileKernel":
        form, tokens, multiplies = arguments
        return "linear, %s, %d rows%s" % (FORMATS[form], tokens, "" if multiplies or FORMATS[form] != "fp8 x fp8" else ", as bf16")
    if base == "LinearGroupsKernel":
        return "linear, fp8 x fp8 by warpgroups, %d rows%s" % (arguments[0], ", several ranges" if arguments[1] else "")
    if base == "AttentionKernel":
        is_e4m3, dim, rows, caps = arguments
        heads = "latent vectors" if dim == LATENT_DIM else "heads of %s" % (dim or "other sizes")
        return "attention, %s cache, %s, %d rows%s" % ("fp8" if is_e4m3 else "bf16", heads, rows, ", soft cap" if caps else "")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", base.removesuffix("Kernel")).lower()
    return words + ("" if not arguments else " (%s)" % ", ".join(str(a).lower() for a in arguments))


def short_names(mangled):
    """Kernel names without namespaces, result and parameters, by mangled name."""
    out = subprocess.run(["c++filt"], input="\n".join(mangled), stdout=subprocess.PIPE, text=True, check=True).stdout
    short = {}
    for name, plain in zip(mangled, out.splitlines()):
        plain = re.sub(r"\(anonymous namespace\)::|[\w]+::", "", plain.removeprefix("void "))
        short[name] = re.match(r"\w+(<.*?>(?=\(|$))?", plain).group(0)
    return short


def parse(usage, code):
    """Kernels from the output of `cuobjdump -res-usage` and `cuobjdump -sass`."""
    kernels, architecture, name = {}, 0, ""
    for line in usage.splitlines():
        if found := re.match(r"arch = sm_(\d+)", line):
            architecture = int(found.group(1))
        elif found := re.match(r"\s*Function (\S+):", line):
            name = found.group(1)
        elif found := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", line):
            kernels[architecture, name] = Kernel(architecture, name, *map(int, found.groups()))
    for line in code.splitlines():
        if found := re.match(r"\s*code for sm_(\d+)", line):
            architecture = int(found.group(1))
        elif found := re.match(r"\s*Function : (\S+)", line):
            name = found.group(1)
        elif found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            kernels[architecture, name].opcodes[found.group(1)] += 1
    short = short_names(sorted({kernel.name for kernel in kernels.values()}))
    for kernel in kernels.values():
        kernel.name = short[kernel.name]
    return list(kernels.values())


def read(folder, tools):
    environment = dict(os.environ, PATH="%s:%s" % (tools, os.environ["PATH"])) if tools else None

    def one(path):
        usage, code = (subprocess.run(["cuobjdump", how, path], stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
                       for how in ("-res-usage", "-sass"))
        return parse(usage, code)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [kernel for kernels in pool.map(one, sorted(folder.rglob("*.cu.o"))) for kernel in kernels]


def blocks_together(kernel, threads):
    """Number of blocks for which a multiprocessor has enough registers and threads."""
    warp_registers = -(-kernel.registers * 32 // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    return min(REGISTERS // (warp_registers * -(-threads // 32)), MOST_THREADS[kernel.architecture] // threads)


def faults_of(kernel):
    base, arguments = split_name(kernel.name)
    what = "%s for sm_%d" % (display_name(kernel.name) if base in PLANS else kernel.name, kernel.architecture)
    if base not in PLANS:
        return ["%s: no plan for it in tools/machine_code.py" % what]
    plan = PLANS[base](kernel.architecture, arguments)
    faults = []
    if kernel.stack > plan.stack or kernel.local:
        faults.append("%s: expected no stack, found %d bytes, and %d of local memory" % (what, kernel.stack, kernel.local))
    spills = sum(count for name, count in kernel.opcodes.items() if re.match(r"(LDL|STL)(\.|$)", name))
    if spills and not plan.stack:
        faults.append("%s: expected no registers spilled to memory, found %d LDL and STL" % (what, spills))
    blocks = blocks_together(kernel, plan.threads)
    if blocks < plan.blocks:
        faults.append("%s: expected registers for %d blocks of %d threads together, found %d registers, which suffice for %d"
                      % (what, plan.blocks, plan.threads, kernel.registers, blocks))
    faults += ["%s: expected the instruction %s, found none" % (what, name) for name in plan.instructions if not kernel.has(name)]
    return faults


def check(kernels):
    faults = [fault for kernel in kernels for fault in faults_of(kernel)]
    seen = {split_name(kernel.name)[0] for kernel in kernels}
    return faults + ["%s: a plan for a kernel that is not there" % name for name in PLANS if name not in seen]


def label(architecture):
    return "%d.%d" % divmod(architecture, 10)


def plan_of(kernel):
    base, arguments = split_name(kernel.name)
    return PLANS[base](kernel.architecture, arguments)


def cell_of(kernel):
    return "%d, %d" % (kernel.registers, blocks_together(kernel, plan_of(kernel).threads))


def instructions_of(kernels):
    """Planned instructions of a kernel: first those on most architectures, then the exceptions."""
    by = collections.defaultdict(list)
    for kernel in kernels:
        by[" ".join(plan_of(kernel).instructions)].append(label(kernel.architecture))
    most, *others = sorted(by, key=lambda names: -len(by[names]))
    return "; ".join([most, *["%s: %s" % (", ".join(by[names]), names or "none") for names in others]])


def with_plans(kernels):
    """Kernels with a plan, by the name on the page, sorted."""
    by = collections.defaultdict(list)
    for kernel in sorted(kernels, key=lambda kernel: (display_name(kernel.name), kernel.architecture)):
        if split_name(kernel.name)[0] in PLANS:
            by[display_name(kernel.name)].append(kernel)
    return by


INTRODUCTION = """# Machine code of the CUDA kernels

`tools/machine_code.py page` generates this page with CUDA's `cuobjdump` from the machine code that
nvcc %s produces for each architecture. No kernel uses stack memory or spills registers, except in
the sine and cosine functions.

- Threads: the number of threads per block.
- Blocks: the minimum number of the kernel's blocks that must fit into a multiprocessor's registers
  at the same time. Shared memory may limit the blocks further.
- 8.0 to 12.0, by compute capability: the number of registers per thread, and the number of blocks
  for which a multiprocessor has enough registers and threads.
- Instructions: the instructions that the kernel's machine code must contain.

`make test-machine-code` checks these properties, and that this page is up to date. `tests/run.py
cuda`, a part of `make test-all`, makes the same checks for compute capability 9.0.
"""


def nvcc_version(folder):
    """Version of the compiler that the build in `folder` was configured for: "13.0"."""
    for found in folder.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        if version := re.search(r'^set\(CMAKE_CUDA_COMPILER_VERSION "(\d+\.\d+)', found.read_text(), re.M):
            return version.group(1)
    sys.exit("%s: found no CMakeFiles/*/CMakeCUDACompiler.cmake with a version: expected the folder of a build with CUDA" % folder)


def all_architectures():
    """Architectures that kernels are compiled for, from cmake/Cuda.cmake."""
    return [int(word) for word in re.search(r'set\(default_architectures "([\d;]+)"\)', CUDA_CMAKE.read_text()).group(1).split(";")]


def page(kernels, version):
    architectures = sorted({kernel.architecture for kernel in kernels})
    head = ["kernel", "threads", "blocks", *map(label, architectures), "instructions"]
    rows = [head, ["---"] * len(head)]
    for name, one in with_plans(kernels).items():
        cells = {kernel.architecture: cell_of(kernel) for kernel in one}
        plan = plan_of(one[0])
        rows.append([name, str(plan.threads), str(plan.blocks), *[cells.get(architecture, "") for architecture in architectures], instructions_of(one)])
    return INTRODUCTION % version + "\n" + "".join("| %s |\n" % " | ".join(row) for row in rows)


def stale(kernels, text):
    """Architectures for which the page is out of date."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    told = collections.defaultdict(dict)  # the page's cells, by architecture and kernel
    for row in rows[2:]:
        for name, cell in zip(rows[0][3:-1], row[3:]):
            if cell:
                told[name][row[0]] = (row[1], row[2], cell)
    found = collections.defaultdict(dict)
    for name, one in with_plans(kernels).items():
        for kernel in one:
            found[label(kernel.architecture)][name] = (str(plan_of(kernel).threads), str(plan_of(kernel).blocks), cell_of(kernel))
    return ["%s: what it tells of %s is not what this build holds: run tools/machine_code.py page" % (PAGE.name, name)
            for name in found if found[name] != told[name]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "page"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tools", type=pathlib.Path)
    options = parser.parse_args()
    kernels = read(options.folder, options.tools)
    if not kernels:
        sys.exit("%s: found no *.cu.o with kernels: expected the folder of a build with CUDA" % options.folder)
    faults = check(kernels)
    if options.command == "page":
        found, expected = sorted({kernel.architecture for kernel in kernels}), all_architectures()
        if found != expected:
            sys.exit("%s: expected machine code for %s, found it for %s" % (options.folder, expected, found))
        PAGE.write_text(page(kernels, nvcc_version(options.folder)))
    else:
        faults += stale(kernels, PAGE.read_text() if PAGE.exists() else "")
    print("\n".join(faults or ["%d kernels as planned" % len(kernels)]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
