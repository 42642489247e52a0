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
      "model's architecture is read from the field `architectures` of config.json, or from "
      "`model_type` if\n"
      "that field is missing. Weights may have any format listed in "
      "[checkpoints.md](checkpoints.md). For\n"
      "an architecture that is not in the table, `sluice inspect MODEL` lists the missing "
      "operators.\n"
      "\n"
      "Tests compare each family with transformers in float32. They use small checkpoints of the "
      "family\n"
      "with random weights (`tools/checkpoints`), prompts of 1 to 150 tokens, and greedy answers. "
      "The error\n"
      "in the table is the maximum, over all positions, of the root mean square error of the 20 "
      "most likely\n"
      "tokens' log probabilities. Tests allow 2e-4. On a GPU, a model that needs an operator "
      "without a\n"
      "kernel is refused; the error names the operator ([list](cuda.md#which-models)).\n"
      "\n"
      "In the table, a window is sliding-window attention, per-head norms are norms of each head's "
      "q and k,\n"
      "and a temperature is a factor for the queries.\n"
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
