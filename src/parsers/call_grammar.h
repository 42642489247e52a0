// Constrains an answer's calls to the tools of a request. Writes a structural tag for the grammar
// engine, in the format of a tool parser.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice {

// The syntax of a format's calls: `begin` NAME `arguments` ARGUMENTS `end`.
struct CallGrammar {
  // Text that begins a call within free text; "" if the format's calls cannot be constrained.
  std::string_view trigger = "";
  std::string_view begin = "";
  std::string_view arguments = "";
  std::string_view end = "";
  // Text around adjacent calls; "" if the format has no sections.
  std::string_view section_begin = "";
  std::string_view section_end = "";
  std::string_view separator = "";   // between the calls of a section
  std::string_view opening = "";     // before the first section of an answer that must call
  std::string_view number_end = "";  // if not "": the name is followed by ':', a number, and this
                                     // text
  // The format of the arguments: "json", or another style that the grammar engine supports.
  std::string_view style = "json";
  // Text around a thought with which an answer may begin even if it must call; "": no thought
  // allowed.
  std::string_view thought_begin = "";
  std::string_view thought_end = "";
  bool constrains_auto = false;  // whether calls are constrained even if the request does not
                                 // demand it
};

// A tool that the answer may call.
struct CallableTool {
  std::string name;
  json::Value schema;  // JSON schema of the arguments
};

enum class CallCount {
  kAny,         // free text, with or without calls
  kAtLeastOne,  // the answer begins with a call
  kOne          // the answer is exactly one call of the first tool
};

// Returns the structural tag. If `parallel` is false, the answer ends with its first call.
// REQUIRES: `grammar` has a trigger, and `tools` is not empty.
json::Value CallTag(const CallGrammar& grammar, std::span<const CallableTool> tools,
                    CallCount count, bool parallel);

// Returns the JSON schema of a list of calls, each {"name", "parameters"}, for formats without a
// grammar.
json::Value CallListSchema(std::span<const CallableTool> tools, bool parallel);

}  // namespace sluice
