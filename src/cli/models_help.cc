#include "cli/models_help.h"

#include <fmt/format.h>

#include "models/registry.h"

namespace sluice::cli {
namespace {

std::string ErrorText(const FamilyNotes& notes) {
  return notes.golden.empty() ? "" : fmt::format("{:.1g}", notes.error);
}

}  // namespace

std::string ModelsMarkdown() {
  std::string text =
      "# Models\n"
      "\n"
      "`sluice help --models` prints this page from the registry of families, and `make docs` "
      "writes it. A\n"
      "model's architecture is found by `architectures` in config.json, or by `model_type` if that "
      "field is\n"
      "missing. Weights may have every format of [checkpoints.md](checkpoints.md). For any other\n"
      "architecture, `sluice inspect MODEL` lists the operators that are missing.\n"
      "\n"
      "Tests compare each family with transformers in float32: with small random checkpoints of "
      "the\n"
      "family's shape (`tools/checkpoints`), prompts of 1 to 150 tokens, and greedy answers. The "
      "error in\n"
      "the table is computed from the log probabilities of the 20 most likely tokens: their root "
      "mean\n"
      "square error at a position, and of all positions the largest. Tests allow 2e-4. On a GPU, a "
      "model\n"
      "that needs an operator without a kernel is refused; the error names the operator\n"
      "([list](cuda.md#which-models)).\n"
      "\n"
      "| architecture | models | differences from Llama | compared on | error |\n"
      "|---|---|---|---|---|\n";
  for (const ModelFamily* family : ModelFamilies()) {
    text +=
        fmt::format("| `{}` | {} | {} | {} | {} |\n", family->architecture, family->notes.models,
                    family->notes.operators, family->notes.golden, ErrorText(family->notes));
  }
  return text;
}

}  // namespace sluice::cli
