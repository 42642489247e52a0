#include "recipe/recipe_document.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace sluice {
namespace {

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  return text;
}

// Returns the lines of a text without line ends.
std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Returns the first line that is neither empty nor a comment.
std::string_view FirstCode(std::string_view text) {
  for (std::string_view line : LinesOf(text)) {
    line = Trimmed(line);
    if (!line.empty() && !line.starts_with('#')) return line;
  }
  return {};
}

bool LooksLikeYaml(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  if (colon + 1 < line.size() && line[colon + 1] != ' ') return false;
  return std::all_of(line.begin(), line.begin() + static_cast<long>(colon), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  });
}

bool LooksLikeCommand(std::string_view line) {
  if (line.empty() || std::string_view("{|=[<(").find(line[0]) != std::string_view::npos)
    return false;
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  if (const size_t equals = word.find('='); equals != std::string_view::npos && equals > 0) {
    return std::all_of(word.begin(), word.begin() + static_cast<long>(equals), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    });
  }
  if (word.starts_with("./")) return true;
  constexpr std::array kCommands = {"docker",       "git",
                                    "curl",         "vllm",
                                    "trtllm-serve", "sluice",
                                    "lm_eval",      "lm-eval",
                                    "pip",          "pip3",
                                    "python",       "python3",
                                    "export",       "cat",
                                    "cd",           "for",
                                    "if",           "echo",
                                    "uv",           "mkdir",
                                    "nvidia-smi",   "huggingface-cli",
                                    "hf",           "sudo",
                                    "watch",        "df",
                                    "wget"};
  return std::find(kCommands.begin(), kCommands.end(), word) != kCommands.end();
}

BlockKind KindOf(const RecipeBlock& block) {
  const std::string_view first = FirstCode(block.text);
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), block.language) != names.end();
  };
  if (is({"yaml", "yml"}) || block.title.ends_with(".yaml") || block.title.ends_with(".yml"))
    return BlockKind::kYaml;
  if (is({"python", "py"})) return BlockKind::kPython;
  const bool shell = is({"bash", "sh", "shell", "console", "zsh"});
  if (!shell && !block.language.empty()) return BlockKind::kOther;
  if (first.starts_with("--")) return BlockKind::kOptions;
  if (LooksLikeCommand(first)) return BlockKind::kShell;
  if (!shell && LooksLikeYaml(first)) return BlockKind::kYaml;
  // Blocks marked as shell often contain output of commands, such as tables, lines of dashes or
  // JSON.
  if (!shell || first.empty()) return BlockKind::kOther;
  return std::isalpha(static_cast<unsigned char>(first[0])) != 0 ? BlockKind::kShell
                                                                 : BlockKind::kOther;
}

class MarkdownReader {
 public:
  explicit MarkdownReader(RecipeDocument& document) : document_(document) {}

  void Read(std::string_view text) {
    int number = 0;
    for (std::string_view line : LinesOf(text)) {
      ++number;
      if (inside_) {
        InsideBlock(line);
      } else {
        OutsideBlock(line, number);
      }
    }
    if (inside_) Close();
  }

 private:
  void OutsideBlock(std::string_view line, int number) {
    const std::string_view bare = Trimmed(line);
    if (bare.starts_with("```")) {
      inside_ = true;
      indent_ = line.find('`');
      block_ = {};
      block_.line = number + 1;
      block_.language = std::string(Trimmed(bare.substr(
          bare.find_first_not_of('`') == std::string_view::npos ? bare.size()
                                                                : bare.find_first_not_of('`'))));
      block_.title = std::exchange(title_, "");
      return;
    }
    if (bare.empty()) return;
    const bool alone = bare.size() > 2 && bare.front() == '`' && bare.back() == '`' &&
                       bare.substr(1, bare.size() - 2).find('`') == std::string_view::npos;
    title_ = alone ? std::string(bare.substr(1, bare.size() - 2)) : "";
    document_.prose.push_back({number, std::string(bare)});
  }

  void InsideBlock(std::string_view line) {
    if (Trimmed(line).starts_with("```")) {
      Close();
      return;
    }
    // Removes the indentation of a block inside a list.
    size_t spaces = 0;
    while (spaces < indent_ && spaces < line.size() && line[spaces] == ' ') ++spaces;
    block_.text += std::string(line.substr(spaces)) + "\n";
  }

  void Close() {
    inside_ = false;
    block_.kind = KindOf(block_);
    document_.blocks.push_back(std::move(block_));
  }

  RecipeDocument& document_;
  bool inside_ = false;
  size_t indent_ = 0;
  std::string title_;
  RecipeBlock block_;
};

}  // namespace

RecipeDocument ParseRecipe(std::filesystem::path path, std::string_view text) {
  RecipeDocument document;
  const std::string extension = path.extension();
  document.path = std::move(path);
  document.is_markdown = extension == ".md" || extension == ".markdown";
  if (document.is_markdown) {
    MarkdownReader(document).Read(text);
    return document;
  }
  RecipeBlock block;
  block.line = 1;
  block.text = std::string(text);
  const bool yaml = extension == ".yaml" || extension == ".yml";
  block.kind = yaml ? BlockKind::kYaml : BlockKind::kShell;
  if (yaml) block.title = document.path.filename();
  document.blocks.push_back(std::move(block));
  return document;
}

}  // namespace sluice
