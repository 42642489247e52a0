"""Mutants: sources with one mistake each, and the tests that must detect it. A mistake in one rank changes bits of the answers.

A mutant is compiled with the command of its source (or of the file that includes it, where sources are compiled
together), and linked before the libraries of a test program. The build itself is not changed."""
import dataclasses
import json
import os
import pathlib
import shlex
import subprocess

from serving import ROOT

BUILD = ROOT / "build" / "release"
# Time limit of a test program, which detects a rank that waits forever.
LIMIT_S = 240


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    source: str  # path below src
    text: str  # original text, which occurs once
    mistake: str  # its replacement
    program: str
    tests: str  # a gtest filter


BIT_EQUAL = "ParallelModelTest.EveryInstructionSetIsBitEqual:ParallelModelTest.LongSteps*"
DEVICES = "*DeviceRanksTest.*"
MUTANTS = [
    # A missing barrier: a rank continues before all ranks have read its data or provided their own.
    Mutant("no_barrier_before_a_gather", "parallel/local_group.cc", 'Arrive("a gather", Patience::kStep);', "", "parallel_test",
           "LocalGroupTest.*"),
    Mutant("no_barrier_behind_a_gather", "parallel/local_group.cc", 'Arrive("the end of a gather", Patience::kStep);', "", "parallel_test",
           "LocalGroupTest.*"),
    # A wrong offset: rows, heads or columns of another rank.
    Mutant("pieces_in_another_order", "parallel/local_group.cc", "CopyColumns(Peer(from, widths[from] * rows), widths[from], begin, end,",
           "const size_t other = widths.size() - 1 - from;\n CopyColumns(widths[other] == widths[from] ? Peer(other, widths[from] * rows) : "
           "Peer(from, widths[from] * rows), widths[from], begin, end,", "models_test", BIT_EQUAL),
    Mutant("messages_in_another_order", "parallel/mpi_group.cc", "BeginReceive(target + first * rows, bytes, peer);",
           "BeginReceive(target + (width - first - widths[static_cast<size_t>(peer)]) * rows, bytes, peer);", "parallel_test", "MpiGroupTest.*"),
    Mutant("keys_of_another_head", "models/shard.cc", "{head, head + 1}}", "{head == 0 ? head : head - 1, head == 0 ? 1 : head}}",
           "models_test", "ShardTest.*"),
    Mutant("embeddings_of_another_rank", "models/layers/tensor_ranks.cc", "offset += row_bytes;", "", "models_test", BIT_EQUAL),
    Mutant("columns_of_another_norm", "models/layers/attention.cc", "whole + columns.begin, width, columns.size()",
           "whole, width, columns.size()", "models_test", "ParallelModelTest.EveryFamily*"),
    Mutant("biases_of_another_rank", "models/weights.cc", "RowRange{first + held.begin, first + held.end}",
           "RowRange{first, first + held.size()}", "models_test", "ParallelModelTest.EveryFamily*"),
    Mutant("gate_and_up_apart", "models/weights.cc", "if (spec.activation == Activation::kClampedSwiglu)\n",
           "if (spec.activation == Activation::kClampedSwiglu && false)\n", "models_test", "ParallelModelTest.EveryFamily*"),
    Mutant("factors_of_another_rank", "models/lora_slots.cc", "stored + module.held.front().begin * row_bytes", "stored", "models_test",
           "ParallelAdaptersTest.*"),
    Mutant("adapters_of_other_rows", "models/decoder.cc", "if (step.lora != nullptr) step.lora->KeepRows(input.logit_rows);\n", "",
           "models_test", "ParallelAdaptersTest.*"),
    Mutant("a_stage_without_the_last_result", "models/decoder.cc", "rows * spec_.hidden_size);\n  groups_.all->Post",
           "0);\n  groups_.all->Post", "models_test", BIT_EQUAL),
    Mutant("values_of_the_keys_of_another_stage", "models/decoder.cc", "k, k + keys.width, 2 * keys.width", "k, k, 2 * keys.width", "models_test",
           "ParallelModelTest.StepsInFlight*"),
    Mutant("embeddings_of_another_ranks_columns", "models/layers/layer_embedding.cc", "width + own.begin,", "width,", "models_test",
           "ParallelModelTest.LongSteps*"),
    # On a device: a split of the sum over inputs that depends on the shard's size.
    Mutant("a_split_of_the_shard", "models/device/device_weights.cc", "weights.whole_n = whole_rows;", "weights.whole_n = weights.n;",
           "models_test", "DeviceRanksWeightsTest.*"),
    # A norm over only one rank's part.
    Mutant("a_norm_of_the_shard", "models/layers/attention.cc", "if (whole && step.ranks != nullptr)", "if (whole && step.ranks == nullptr)",
           "models_test", "ParallelModelTest.EveryFamily*"),
]


def edges():
    return json.loads(subprocess.run(["ninja", "-C", BUILD, "-t", "compdb"], check=True, capture_output=True, text=True).stdout)


class Workshop:
    """Compiles mutants into `folder`."""

    def __init__(self, folder):
        self.folder, self.edges = folder, edges()

    def compile_edge(self, source):
        """(compile command of the source, file that it compiles)."""
        for edge in self.edges:
            if edge["file"] == str(source) and edge["output"].endswith(".o"):
                return edge, source
        for edge in self.edges:
            file = pathlib.Path(edge["file"])
            if edge["output"].endswith(".o") and file.name.startswith("unity_") and '"%s"' % source in file.read_text():
                return edge, file
        raise AssertionError("nothing compiles %s" % source)

    def build(self, mutant):
        """Builds the test program with the mistake."""
        source = ROOT / "src" / mutant.source
        text = source.read_text()
        assert text.count(mutant.text) == 1, "%s: expected %r once in %s" % (mutant.name, mutant.text, mutant.source)
        folder = self.folder / mutant.name
        folder.mkdir()
        changed = folder / source.name
        changed.write_text(text.replace(mutant.text, mutant.mistake))
        edge, compiled = self.compile_edge(source)
        if compiled != source:
            together = folder / compiled.name
            together.write_text(compiled.read_text().replace('"%s"' % source, '"%s"' % changed))
            changed = together
        made = folder / "mutant.o"
        names = {edge["output"]: made, str(compiled): changed, edge["output"] + ".d": folder / "mutant.d"}
        words = [str(names.get(word, word)) for word in shlex.split(edge["command"])]
        self.run(words + ["-Wno-error"])
        link = next(edge for edge in self.edges if edge["output"] == "bin/" + mutant.program)
        program = folder / mutant.program
        words = shlex.split(link["command"].removeprefix(": && ").split(" && ")[0])
        place = words.index("-o")
        # Link the mutant before the libraries, so that the linker ignores the original source in
        # them.
        words[place:place + 2] = [str(made), "-o", str(program)]
        self.run(words)
        return program

    def run(self, words):
        done = subprocess.run(words, cwd=BUILD, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def run_tests(program, tests):
    """(exit code, output); a program that hangs is killed and counts as failed."""
    try:
        done = subprocess.run([program, "--gtest_filter=" + tests, "--gtest_brief=1"], cwd=ROOT, capture_output=True, text=True,
                              timeout=LIMIT_S, env={**os.environ, "SLUICE_LOG_LEVEL": "error"})
    except subprocess.TimeoutExpired:
        return 124, "it hangs"
    return done.returncode, done.stdout + done.stderr
