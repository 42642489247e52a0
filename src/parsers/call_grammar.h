// Constrains the calls of an answer to the tools of a request, in the format of a parser, as a
// structural tag for grammar engines.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice {

// How a format writes calls: `begin` NAME `arguments` ARGUMENTS `end`.
struct CallGrammar {
  // Text that begins a call in free text; "" if calls of the format cannot be constrained.
  std::string_view trigger = "";
  std::string_view begin = "";
  std::string_view arguments = "";
  std::string_view end = "";
  // Enclose adjacent calls; "" if there are no sections.
  std::string_view section_begin = "";
  std::string_view section_end = "";
  std::string_view separator = "";   // between calls of a section
  std::string_view opening = "";     // before the first section of an answer that must call
  std::string_view number_end = "";  // if not "": after the name come ':', a number, and this
  // The format of the arguments: "json", or another style of the engine.
  std::string_view style = "json";
  // Enclose a thought with which an answer may begin even if it must call; "": not allowed.
  std::string_view thought_begin = "";
  std::string_view thought_end = "";
  bool constrains_auto = false;  // constrains calls even if the request does not ask for it
};

// A function that may be called.
struct CallableTool {
  std::string name;
  json::Value schema;  // of the arguments
};

enum class CallCount {
  kAny,         // free text with or without calls
  kAtLeastOne,  // begins with a call
  kOne          // exactly one call, of the first tool, and nothing else
};

// If `parallel` is false, the answer ends with its first call. REQUIRES: `grammar` has a trigger,
// and `tools` is not empty.
json::Value CallTag(const CallGrammar& grammar, std::span<const CallableTool> tools,
                    CallCount count, bool parallel);

// The JSON schema of a list of calls, each {"name", "parameters"}, for formats without a grammar.
json::Value CallListSchema(std::span<const CallableTool> tools, bool parallel);

}  // namespace sluice
