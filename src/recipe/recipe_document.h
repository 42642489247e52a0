// A recipe as its author wrote it: prose, code blocks with their kind, the files it shows.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

enum class BlockKind { kShell, kYaml, kPython, kOptions, kOther };

struct RecipeBlock {
  BlockKind kind = BlockKind::kOther;
  int line = 0;          // of its first line of code
  std::string title;     // the `name` that stands alone above it; "" for none
  std::string language;  // as the fence says
  std::string text;
};

struct ProseLine {
  int line = 0;
  std::string text;
};

struct RecipeDocument {
  std::filesystem::path path;
  bool is_markdown = false;
  std::vector<RecipeBlock> blocks;
  std::vector<ProseLine> prose;  // lines outside of blocks; empty ones left out
};

// Reads a recipe in Markdown, or a shell script, or a YAML file, by its name's ending; anything
// else is a launch command or a script. `text` is what the file holds.
RecipeDocument ParseRecipe(std::filesystem::path path, std::string_view text);

}  // namespace sluice
