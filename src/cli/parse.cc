#include "parsers/parse_tool.h"

#include <iostream>

#include "base/file.h"
#include "cli/command.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxParsedToolsBytes = 64 << 20;

}  // namespace

Result<int> RunParseCommand(const options::Settings& settings) {
  ParseToolOptions parse;
  if (const auto name = settings.Text("parse-tool-parser")) {
    ASSIGN_OR_RETURN(parse.tools, ToolParserNamed(*name, "tool-parser"));
  }
  if (const auto name = settings.Text("parse-reasoning-parser")) {
    ASSIGN_OR_RETURN(parse.reasoning, ReasoningParserNamed(*name, "reasoning-parser"));
  }
  RETURN_IF_ERROR(CheckParsersAgree(parse.tools, parse.reasoning));
  if (const auto file = settings.Text("parse-tools")) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(*file, kMaxParsedToolsBytes));
    auto tools = json::Parse(text);
    if (!tools) return tl::unexpected<Error>(std::move(tools).error().In(*file));
    if (!tools->is_array()) {
      return Fail(ErrorCode::kInvalidArgument, *file + ": expected a list of tools", "tools");
    }
    parse.types = std::make_shared<const ToolTypes>(
        *tools, parse.tools != nullptr && parse.tools->reads_schemas);
  }
  std::ios::sync_with_stdio(false);
  RETURN_IF_ERROR(RunParse(parse, std::cin, std::cout));
  std::cout.flush();
  return 0;
}

}  // namespace sluice::cli
