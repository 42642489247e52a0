// The parts of a recipe: prose, code blocks with their kinds, files.
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
  std::string language;  // from the fence
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

// Reads a recipe in Markdown, or a shell script, or a YAML file, by the extension; anything
// else is a launch command or a script. `text` is the content of the file.
RecipeDocument ParseRecipe(std::filesystem::path path, std::string_view text);

}  // namespace sluice
