// A constraint that applies after a model's reasoning; the reasoning itself is unconstrained.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "constraints/constraint.h"

namespace sluice {

struct ReasoningMarks {
  bool begins_inside = false;    // the answer begins inside reasoning
  std::vector<int32_t> begin;    // else: first tokens that begin it
  std::vector<std::string> end;  // text after which the constraint begins, with the next token
  std::function<std::string(int32_t)> bytes_of;  // what a token adds to the text
};

// REQUIRES: `constraint` is not null; `marks.end` is not empty.
std::shared_ptr<const Constraint> AfterReasoning(std::shared_ptr<const Constraint> constraint,
                                                 ReasoningMarks marks);

}  // namespace sluice
