// The marks of a model's thoughts (reasoning) in the text of an answer.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct ReasoningFormat {
  std::vector<std::string> start;
  std::vector<std::string> end;
  std::string before_end = {};  // if not empty: `end` counts only after this text
  bool starts_inside = false;   // whether an answer begins inside a thought, with or without
                                // `start`
  bool reads_prompt = false;    // whether the last mark in the prompt decides if a thought is open
  // Whether chat_template_kwargs {"enable_thinking": false} or {"thinking": false} turn thoughts
  // off.
  bool can_be_off = false;
  bool must_be_on = false;  // whether the answer has thoughts only if one of the two arguments is
                            // true
  // Whether further thoughts are read after the first one, and stray marks dropped. If not, marks
  // are text.
  bool repeats = false;
  bool keeps_start = false;             // whether `start` is part of the thought's text
  bool needs_words = false;             // whether `start` is content if the answer ends right after
                                        // it
  std::vector<std::string> call_marks;  // calls that end a thought when they begin inside it
  std::string content_prefix;  // if not empty: the whole answer is content, after this prefix
};

}  // namespace sluice
