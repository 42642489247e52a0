"""tools/machine_code.py with sample output of cuobjdump: it finds each kind of deviation from a kernel's plan."""
import importlib.util

import pytest

from serving import ROOT

SPEC = importlib.util.spec_from_file_location("machine_code", ROOT / "tools" / "machine_code.py")
machine_code = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(machine_code)

LINEAR = "_ZN6sluice4cuda6linear16LinearTileKernelILNS1_6FormatE2ELi16ELb1EEEvNS1_14LinearTileArgsE"
ATTENTION = "_ZN6sluice4cuda45_GLOBAL__N__e9f9f4cc_12_attention_cu_860ba5c315AttentionKernelILb0ELi128ELi64ELb0EEEvNS0_15AttentionLaunchE"


def usage(name, registers=90, stack=0, local=0, architecture=90):
    return """
Fatbin elf code:
================
arch = sm_%d
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:16384 CONSTANT[4]:8
 Function %s:
  REG:%d STACK:%d SHARED:1024 LOCAL:%d CONSTANT[0]:808 TEXTURE:0 SURFACE:0 SAMPLER:0
""" % (architecture, name, registers, stack, local)


def code(name, *instructions, architecture=90):
    lines = ["\tcode for sm_%d" % architecture, "\t\tFunction : %s" % name,
             "\t.headerflags\t@\"EF_CUDA_TEXMODE_UNIFIED\""]
    for i, instruction in enumerate(instructions):
        lines += ["        /*%04x*/                   %s ;    /* 0x00000a00ff017b82 */" % (16 * i, instruction),
                  "                                                   /* 0x000fe20000000800 */"]
    return "\n".join(lines)


GOOD = ["LDC R1, c[0x0][0x28]", "@!P0 LDGSTS.E.BYPASS.128 [R67], desc[UR12][R56.64], P4", "LDS.64 R2, [R3]",
        "HMMA.16816.F32 R4, R8, R12, R4", "ACQBULK", "PREEXIT"]


def faults(name=LINEAR, instructions=GOOD, architecture=90, **found):
    kernels = machine_code.parse(usage(name, architecture=architecture, **found), code(name, *instructions, architecture=architecture))
    assert len(kernels) == 1
    return machine_code.faults_of(kernels[0])


def test_a_kernel_as_planned_has_no_faults():
    assert faults() == []
    assert faults(ATTENTION, GOOD + ["LDSM.16.M88.4 R4, [R5]"], registers=255) == []


@pytest.mark.parametrize("name, instructions, found, expected", [
    (LINEAR, GOOD, {"stack": 8}, "expected no stack, found 8 bytes"),
    (LINEAR, GOOD, {"local": 16}, "16 of local memory"),
    (LINEAR, [*GOOD, "STL [R1+0x50], R30", "LDL.LU R6, [R1+0x50]"], {}, "found 2 LDL and STL"),
    (LINEAR, GOOD, {"registers": 103}, "expected registers for 5 blocks of 128 threads together, found 103 registers, which suffice for 4"),
    (LINEAR, GOOD[:3], {}, "expected the instruction HMMA, found none"),
    (LINEAR, [word.replace(".128", "") for word in GOOD], {}, "expected the instruction LDGSTS.128, found none"),
    (LINEAR, GOOD, {"architecture": 89}, "expected the instruction QMMA, found none"),
    (ATTENTION, GOOD, {"registers": 255}, "expected the instruction LDSM, found none"),
    ("_ZN6sluice4cuda9NewKernelEi", GOOD, {}, "no plan for it"),
])
def test_departures_are_named(name, instructions, found, expected):
    said = faults(name, instructions, **found)
    assert any(expected in line for line in said), said


def test_a_plan_without_a_kernel_is_named():
    kernels = machine_code.parse(usage(LINEAR), code(LINEAR, *GOOD))
    said = machine_code.check(kernels)
    assert "AttentionKernel: a plan for a kernel that is not there" in said
    assert not any("LinearTileKernel" in line for line in said)


def test_the_page_is_of_what_was_compiled():
    kernels = machine_code.parse(usage(LINEAR), code(LINEAR, *GOOD))
    text = machine_code.page(kernels, "13.0")
    assert "| linear, fp8 x fp8, 16 rows | 128 | 5 | 90, 5 | LDGSTS.128 LDS HMMA ACQBULK PREEXIT |" in text
    assert machine_code.stale(kernels, text) == []
    kernels[0].registers = 91
    assert machine_code.stale(kernels, text) != []
