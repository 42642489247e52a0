"""The program's file: where its libraries come from, its hardening, and no trace of the build folder."""
import re
import subprocess

import pytest

from serving import BIN, ROOT

PROGRAM = BIN / "sluice"
# First instruction of a function that may be the target of an indirect jump (x86-64), or that signs its
# return address (AArch64).
LANDING = {"X86-64": bytes.fromhex("f30f1efa"), "AArch64": bytes.fromhex("3f2303d5")}


def readelf(*words):
    return subprocess.run(["readelf", "--wide", *words, PROGRAM], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def dynamic():
    return readelf("--dynamic")


def test_names_no_folder_for_libraries(dynamic):
    assert not re.search(r"R(UN)?PATH", dynamic)


def test_takes_no_library_from_the_current_directory(dynamic, tmp_path):
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert names
    for name in names:
        (tmp_path / name).write_text("not a library")
    result = subprocess.run([PROGRAM, "version"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_lies_anywhere_and_binds_before_it_runs(dynamic):
    assert re.search(r"\(FLAGS\).*BIND_NOW", dynamic)
    assert re.search(r"\(FLAGS_1\).*NOW.*PIE", dynamic)
    segments = readelf("--segments")
    assert "GNU_RELRO" in segments
    assert re.search(r"GNU_STACK .* RW +0x", segments)


def test_checks_its_stack_and_its_copies():
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail@" in symbols
    assert re.search(r"__(mem|str)\w+_chk@", symbols)


def test_marks_where_it_may_be_jumped_to():
    machine = re.search(r"Machine:.*?(X86-64|AArch64)", readelf("--file-header"))
    if not machine:
        pytest.skip("another processor")
    # The C library's startup code alone contains only a few.
    assert PROGRAM.read_bytes().count(LANDING[machine.group(1)]) > 1000


def test_claims_of_landing_pads_and_shadow_stacks_what_its_note_marks():
    """The kernel and the C library read this note of the ELF file (IBT and SHSTK, or BTI). They enforce the protections for the whole
    program, or not at all."""
    notes, page = readelf("--notes"), " ".join((ROOT / "docs" / "security.md").read_text().split())
    marked = re.search(r"(?:x86|AArch64) feature: .*(?:IBT, SHSTK|BTI)", notes)
    assert bool(marked) != ("Two protections are not in effect: checks of the targets of indirect jumps, and shadow stacks." in page), notes


def test_says_nothing_of_where_it_was_built():
    data = PROGRAM.read_bytes()
    assert not re.findall(re.escape(str(ROOT)).encode() + rb"/(?:src|build)/[\w./]*", data)
