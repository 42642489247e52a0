#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/check.h"
#include "base/text_search.h"
#include "tokenizer/encode_budget.h"
#include "tokenizer/regex_syntax.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

// Costs in EncodeBudget: units per report of the matcher, and number of scanned bytes per unit.
constexpr size_t kUnitsOfReport = 2;
constexpr size_t kBytesOfUnit = 4;
// Limits backtracking between two reports, for one start position.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackBytes = 1 << 20;

// Buffers for matching; each thread reuses its own.
struct Scratch {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  size_t reported = 0;  // position of the matcher at the last report

  Scratch() {
    pcre2_set_callout(
        context,
        [](pcre2_callout_block* block, void* self) {
          return static_cast<Scratch*>(self)->Report(block->current_position) ? 0
                                                                              : PCRE2_ERROR_CALLOUT;
        },
        this);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Spends the work since the last report. Returns false if the matcher must stop.
  bool Report(size_t at) {
    const size_t passed = at > reported ? at - reported : reported - at;
    reported = at;
    return EncodeBudget::Spend(kUnitsOfReport + passed / kBytesOfUnit);
  }
};

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern Pattern::OfString(std::string text) {
  Pattern pattern;
  pattern.string_ = std::move(text);
  return pattern;
}

Result<Pattern> Pattern::OfRegex(std::string_view regex) {
  ASSIGN_OR_RETURN(const std::string translated, TranslateOniguruma(regex));
  Pattern pattern;
  pattern.compiled_ = std::make_unique<Compiled>();
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  pattern.compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (pattern.compiled_->code == nullptr) {
    char message[128] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return Fail(ErrorCode::kUnsupported,
                fmt::format("split pattern '{}': {}", regex.substr(0, 200), message));
  }
  // Ignores a failure: without JIT support, matching is slower but gives the same matches.
  pcre2_jit_compile(pattern.compiled_->code, PCRE2_JIT_COMPLETE);
  return pattern;
}

Result<Pattern> Pattern::Parse(const json::Value* value, std::string_view where) {
  if (value == nullptr || !value->is_object() || value->as_object().size() != 1) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: 'pattern' must be {{\"String\": ...}} or {{\"Regex\": ...}}", where));
  }
  const auto& [kind, text] = value->as_object()[0];
  if (!text.is_string() || (kind != "String" && kind != "Regex")) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: 'pattern' must hold one string named String or Regex, not '{}'",
                            where, kind));
  }
  if (kind == "String" && !text.as_string().empty()) return OfString(text.as_string());
  auto pattern = OfRegex(text.as_string());
  if (!pattern) return tl::unexpected<Error>(std::move(pattern).error().In(where));
  return pattern;
}

void Pattern::Find(std::string_view text, std::vector<Span>& spans) const {
  spans.clear();
  if (text.empty()) return;
  size_t previous = 0;  // End of the previous match.
  const auto add = [&](size_t begin, size_t end) {
    if (previous != begin) spans.push_back({previous, begin, false});
    spans.push_back({begin, end, true});
    previous = end;
  };
  if (compiled_ == nullptr) {
    const TextSearcher searcher(string_);
    for (size_t found = 0;
         (found = searcher.Find(text.substr(previous))) != std::string_view::npos;) {
      const size_t begin = previous + found;
      add(begin, begin + string_.size());
    }
  } else {
    thread_local Scratch scratch;
    size_t start = 0;
    bool any = false;
    scratch.reported = 0;
    while (start <= text.size()) {
      const auto run = [&](uint32_t options) {
        return pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                           start, PCRE2_NO_UTF_CHECK | options, scratch.match, scratch.context);
      };
      int result = run(0);
      if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
      if (result < 0) {
        if (result != PCRE2_ERROR_NOMATCH) EncodeBudget::Exhaust();
        break;
      }
      const size_t* range = pcre2_get_ovector_pointer(scratch.match);
      const size_t begin = range[0];
      const size_t end = range[1];
      if (!scratch.Report(end)) break;
      if (begin == end && any && previous == end) {
        // Ignores an empty match directly after the previous match.
        start += start < text.size() ? unicode::SequenceLength(text[start]) : 1;
        continue;
      }
      start = end;
      any = true;
      add(begin, end);
    }
  }
  if (previous != text.size()) spans.push_back({previous, text.size(), false});
}

size_t Pattern::Growth(std::string_view replacement) const {
  size_t shortest = string_.size();
  if (compiled_ != nullptr) {
    uint32_t empty = 0, characters = 0;
    pcre2_pattern_info(compiled_->code, PCRE2_INFO_MATCHEMPTY, &empty);
    pcre2_pattern_info(compiled_->code, PCRE2_INFO_MINLENGTH, &characters);
    // Empty matches occur before every byte and at the end, and the bytes are kept.
    if (empty != 0 || characters == 0) return 1 + 2 * replacement.size();
    shortest = characters;
  }
  return std::max<size_t>(1, (replacement.size() + shortest - 1) / shortest);
}

std::string Pattern::Replace(std::string_view text, std::string_view replacement) const {
  std::string out;
  std::vector<Span> spans;
  Find(text, spans);
  out.reserve(text.size());
  for (const Span& span : spans) {
    out.append(span.is_match ? replacement : text.substr(span.begin, span.end - span.begin));
  }
  return out;
}

}  // namespace sluice
