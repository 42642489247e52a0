// A constraint of what follows a model's thought: the thought itself is free.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "constraints/constraint.h"

namespace sluice {

struct ThoughtMarks {
  bool begins_inside = false;    // the answer begins with a thought
  std::vector<int32_t> begin;    // else: a first token that begins one
  std::vector<std::string> end;  // text after which the constraint begins, with the next token
  std::function<std::string(int32_t)> bytes_of;  // what a token adds to the text
};

// REQUIRES: `constraint` is not null; `marks.end` is not empty.
std::shared_ptr<const Constraint> AfterThought(std::shared_ptr<const Constraint> constraint,
                                               ThoughtMarks marks);

}  // namespace sluice
