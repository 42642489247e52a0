#include "eval/answer_filters.h"

#include <algorithm>

#include "base/ascii.h"

namespace sluice {
namespace {

constexpr std::string_view kMark = "#### ";

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool IsStrictCharacter(char c) {
  return IsDigit(c) || c == '.' || c == ',';
}

bool IsFlexibleCharacter(char c) {
  return IsStrictCharacter(c) || c == '$';
}

// Returns the end of the run of characters that `is` accepts.
template <typename Is>
size_t RunEnd(std::string_view text, size_t begin, Is is) {
  while (begin < text.size() && is(text[begin])) ++begin;
  return begin;
}

// Returns the end of the flexible pattern's match at `begin`, or `begin` if it does not match.
size_t FlexibleMatchEnd(std::string_view text, size_t begin) {
  const size_t digits = begin + (text[begin] == '-' ? 1 : 0);
  if (const size_t end = RunEnd(text, digits, IsFlexibleCharacter); end - digits >= 2) return end;
  const size_t end = RunEnd(text, digits, IsDigit);
  return end > digits ? end : begin;
}

std::string Normalized(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != ',' && c != '$') plain += AsciiLower(c);
  }
  if (const size_t mark = plain.rfind(kMark); mark != std::string::npos)
    plain.erase(0, mark + kMark.size());
  // As in Python, `$` also matches before a final line break.
  const size_t last = plain.ends_with('\n') ? plain.size() - 1 : plain.size();
  if (last > 0 && plain[last - 1] == '.') plain.erase(last - 1, 1);
  return plain;
}

}  // namespace

std::string StrictMatch(std::string_view answer) {
  for (size_t mark = answer.find(kMark); mark != std::string_view::npos;
       mark = answer.find(kMark, mark + 1)) {
    const size_t begin = mark + kMark.size();
    if (begin == answer.size()) break;
    const size_t digits = begin + (answer[begin] == '-' ? 1 : 0);
    const size_t end = RunEnd(answer, digits, IsStrictCharacter);
    if (end > digits) return std::string(answer.substr(begin, end - begin));
  }
  return std::string(kNoAnswer);
}

std::string FlexibleExtract(std::string_view answer) {
  std::string_view last = kNoAnswer;
  for (size_t begin = 0; begin < answer.size();) {
    const size_t end = FlexibleMatchEnd(answer, begin);
    if (end > begin) last = answer.substr(begin, end - begin);
    begin = std::max(end, begin + 1);
  }
  return std::string(last);
}

bool ExactMatch(std::string_view found, std::string_view reference) {
  return Normalized(found) == Normalized(reference);
}

}  // namespace sluice
