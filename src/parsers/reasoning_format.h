// How a model marks its thoughts (reasoning) in the text.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct ReasoningFormat {
  std::vector<std::string> start;
  std::vector<std::string> end;
  std::string before_end = {};  // if not empty: `end` counts only after this text
  bool starts_inside = false;   // the answer begins inside a thought, with or without `start`
  bool reads_prompt = false;    // the last mark of the prompt decides whether a thought is open
  // chat_template_kwargs {"enable_thinking": false} or {"thinking": false} turn thoughts off.
  bool can_be_off = false;
  bool must_be_on = false;  // the whole answer is content unless one of the two is true
  // After the first thought, further thoughts are read and stray marks dropped. Otherwise marks are
  // text.
  bool repeats = false;
  bool keeps_start = false;             // `start` is text of the thought
  bool needs_words = false;             // `start` is content if the answer ends right after it
  std::vector<std::string> call_marks;  // a call that begins inside a thought ends it
  std::string content_prefix;  // if not empty: the whole answer is content, after this prefix
};

}  // namespace sluice
