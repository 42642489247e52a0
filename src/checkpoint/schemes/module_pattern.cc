#include "checkpoint/schemes/module_pattern.h"

#include <algorithm>
#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/log.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"

namespace sluice {
namespace {

constexpr size_t kMaxPatternBytes = 4096;
constexpr uint32_t kMaxDepth = 32;
constexpr size_t kMaxKeyBytes = 1024;
// Maximum compiled size of a key. Each state takes at least two bytes of the compiled key and six
// ints of the workspace (three in each of two lists).
constexpr size_t kMaxCompiledKeyBytes = 16 << 10;
// PCRE2's limits for matching nested assertions against one name.
constexpr uint32_t kMatchLimit = 10'000;
constexpr uint32_t kHeapLimitKib = 16 << 10;
constexpr size_t kWorkspaceInts = size_t{1} << 16;

constexpr std::string_view kInner = "language_model.";
constexpr std::string_view kModel = "model.";
constexpr std::string_view kInnerModel = "model.language_model.";

std::array<std::string, 3> Spellings(std::string_view module) {
  std::array<std::string, 3> spellings = {std::string(module), std::string(kInner), ""};
  spellings[1] += module;
  if (module.starts_with(kModel)) {
    spellings[2] = kInnerModel;
    spellings[2] += module.substr(kModel.size());
  }
  return spellings;
}

tl::unexpected<Error> Refused(std::string_view pattern, std::string_view why, size_t offset) {
  return Fail(ErrorCode::kUnsupported,
              fmt::format("the pattern '{}' is not supported: {} at character {}",
                          EscapeControls(Utf8Prefix(pattern, 200), ""), why, offset));
}

// Buffers for matching; each thread reuses its own.
struct Scratch {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  std::vector<int> workspace = std::vector<int>(kWorkspaceInts);

  Scratch() {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_depth_limit(context, kMaxDepth);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~Scratch() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

void AppendLiteral(std::string& regex, char c) {
  const bool is_plain = static_cast<unsigned char>(c) >= 0x80 || c == '_' ||
                        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (!is_plain) regex += '\\';
  regex += c;
}

// Equivalent to Python's fnmatch.translate().
std::string RegexOfGlob(std::string_view glob) {
  std::string regex = "(?s)";
  for (size_t i = 0; i < glob.size();) {
    const char c = glob[i++];
    if (c == '*') {
      regex += ".*";
    } else if (c == '?') {
      regex += '.';
    } else if (c == '[') {
      const bool negated = i < glob.size() && glob[i] == '!';
      const size_t begin = i + (negated ? 1 : 0);
      // A leading ] is literal.
      const size_t end = glob.find(']', begin + 1);
      if (end == std::string_view::npos) {
        regex += "\\[";
        continue;
      }
      regex += negated ? "[^" : "[";
      for (const char member : glob.substr(begin, end - begin)) {
        if (member == '-') {
          regex += member;
        } else {
          AppendLiteral(regex, member);
        }
      }
      regex += ']';
      i = end + 1;
    } else {
      AppendLiteral(regex, c);
    }
  }
  return regex + "\\z";
}

}  // namespace

Result<NamePattern> NamePattern::Compile(std::string_view regex, std::string_view source) {
  if (source.size() > kMaxPatternBytes) {
    return Refused(source, fmt::format("more than {} bytes", kMaxPatternBytes), kMaxPatternBytes);
  }
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, kMaxDepth);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                    PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    char message[128] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return Refused(source, message, offset);
  }
  NamePattern pattern(std::string(source), code);
  uint32_t references = 0;
  pcre2_pattern_info(code, PCRE2_INFO_BACKREFMAX, &references);
  if (references > 0) return Refused(source, "a reference to a group", source.size());
  return pattern;
}

Result<NamePattern> NamePattern::Glob(std::string_view text) {
  return Compile(RegexOfGlob(text), text);
}

Result<NamePattern> NamePattern::Regex(std::string_view text) {
  // Python repeats "a{,3}" up to three times; PCRE2 would match these characters literally.
  if (const size_t open = text.find("{,"); open != std::string_view::npos)
    return Refused(text, "a repetition without a minimum count", open);
  return Compile(text, text);
}

size_t NamePattern::CompiledBytes() const {
  size_t bytes = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_SIZE, &bytes);
  return bytes;
}

Result<NamePattern> NamePattern::PeftKey(std::string_view text) {
  if (text.empty() || text.size() > kMaxKeyBytes)
    return Refused(text, fmt::format("a key has 1 to {} bytes", kMaxKeyBytes), text.size());
  for (const std::string_view opening : {"(?=", "(?!", "(?<=", "(?<!"}) {
    if (const size_t place = text.find(opening); place != std::string_view::npos)
      return Refused(text, "look-around", place);
  }
  // Compiles the pattern separately first, so that it cannot close the groups that are added around
  // it.
  if (auto alone = Regex(text); !alone) return alone;
  ASSIGN_OR_RETURN(NamePattern pattern, Compile(fmt::format("(?:.*\\.)?(?:{})\\z", text), text));
  if (pattern.CompiledBytes() > kMaxCompiledKeyBytes)
    return Refused(text, "repetitions of so many parts", text.size());
  return pattern;
}

bool NamePattern::Matches(std::string_view name) const {
  thread_local Scratch scratch;
  const int result = pcre2_dfa_match(
      code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, PCRE2_DFA_SHORTEST,
      scratch.match, scratch.context, scratch.workspace.data(), scratch.workspace.size());
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
    LOG_WARNING("checkpoint",
                "the pattern '{}' is too costly to match with '{}', so it does not match", source_,
                name);
  }
  return result >= 0;
}

void NamePattern::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Status ModuleList::Add(std::string_view entry, Syntax syntax) {
  constexpr std::string_view kRegex = "re:";
  if (syntax == Syntax::kRegexPrefix && entry.starts_with(kRegex)) {
    ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Regex(entry.substr(kRegex.size())));
    patterns_.push_back(std::move(pattern));
  } else if (entry.find_first_of("*?[") != std::string_view::npos) {
    ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Glob(entry));
    patterns_.push_back(std::move(pattern));
  } else {
    names_.insert(CanonicalName(entry));
  }
  return {};
}

Status ModuleList::Add(const std::vector<std::string>& entries, Syntax syntax) {
  for (const std::string& entry : entries) RETURN_IF_ERROR(Add(entry, syntax));
  return {};
}

bool ModuleList::Contains(std::string_view module) const {
  for (std::string_view name = module; !names_.empty();) {
    if (names_.contains(std::string(name))) return true;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) break;
    name = name.substr(0, dot);
  }
  if (patterns_.empty()) return false;
  const auto spellings = Spellings(module);
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const NamePattern& pattern) {
    return std::any_of(spellings.begin(), spellings.end(), [&](const std::string& spelling) {
      return !spelling.empty() && pattern.Matches(spelling);
    });
  });
}

}  // namespace sluice
