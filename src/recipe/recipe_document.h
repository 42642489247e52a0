// Splits a recipe into prose, typed code blocks, and files.
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
  int line = 0;          // line number of its first line of code
  std::string title;     // the name in backquotes on the line above the block; "" if there is none
  std::string language;  // language that the fence names
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
  std::vector<ProseLine> prose;  // nonempty lines outside of blocks
};

// Parses a recipe in Markdown, a shell script or a YAML file, depending on the extension. Files
// with any other extension are parsed as a launch command or a script. `text`: the file's content.
RecipeDocument ParseRecipe(std::filesystem::path path, std::string_view text);

}  // namespace sluice
