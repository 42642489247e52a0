// What an answer has to look like whose calls are held to the tools of a request, in the format of
// a parser: a structural tag, as grammar engines read it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice {

// How a format writes calls: `begin` NAME `arguments` ARGUMENTS `end`.
struct CallGrammar {
  // Where calls begin in free text; "" if calls of the format cannot be held to anything.
  std::string_view trigger = "";
  std::string_view begin = "";
  std::string_view arguments = "";
  std::string_view end = "";
  // Around neighbouring calls; "" where each stands alone.
  std::string_view section_begin = "";
  std::string_view section_end = "";
  std::string_view separator = "";   // between calls of a section
  std::string_view opening = "";     // before the first section of an answer that has to call
  std::string_view number_end = "";  // not "": the name is followed by ':', a number, and this
  // How the arguments are written: "json", or another style of the engine.
  std::string_view style = "json";
  // Around a thought that an answer may begin with although it has to call; "": it may not.
  std::string_view thought_begin = "";
  std::string_view thought_end = "";
  bool constrains_auto = false;  // calls are held to this although nothing asks for it
};

// A function as the grammar needs it.
struct CallableTool {
  std::string name;
  json::Value schema;  // of the arguments
};

enum class CallCount {
  kAny,         // free text with or without calls
  kAtLeastOne,  // begins with a call
  kOne          // nothing but one call; of the first tool
};

// `parallel`: false: the answer ends with its first call. REQUIRES: `grammar` has a trigger, and
// `tools` is not empty.
json::Value CallTag(const CallGrammar& grammar, std::span<const CallableTool> tools,
                    CallCount count, bool parallel);

// The JSON schema of a list of calls, each {"name", "parameters"}: for formats without a grammar.
json::Value CallListSchema(std::span<const CallableTool> tools, bool parallel);

}  // namespace sluice
