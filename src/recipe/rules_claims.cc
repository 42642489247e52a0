// Checks figures in a recipe's prose and tables by calculation: sizes of weights and caches, speeds
// beyond the memory bandwidth.
#include <algorithm>
#include <optional>
#include <regex>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"
#include "recipe/findings.h"

namespace sluice {
namespace {

constexpr double kTolerance = 1.25;  // "~40 GB" for 35 GB is acceptable
constexpr size_t kMaxLine = 2000;
constexpr int64_t kShortContext = 1024;

// A text with a figure, and the model it is about.
struct Claim {
  int line = 0;
  std::string words;    // lower case: the line, or a table's row name
  std::string figures;  // the text to search for figures
  StoredModel model;
};

struct Amount {
  double low = 0, high = 0;
};

bool Has(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

double NumberIn(std::string text) {
  std::erase(text, ',');
  return std::strtod(text.c_str(), nullptr);
}

std::vector<Amount> Amounts(const std::string& text, const std::regex& pattern) {
  std::vector<Amount> amounts;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    const double low = NumberIn((*it)[1]);
    amounts.push_back({low, (*it)[2].matched ? NumberIn((*it)[2]) : low});
  }
  return amounts;
}

std::vector<Amount> Gigabytes(const std::string& text) {
  static const std::regex kPattern(
      R"((\d{1,6}(?:\.\d{1,4})?)(?:\s?-\s?(\d{1,6}(?:\.\d{1,4})?))?\s?GB(?![/\w]))");
  return Amounts(text, kPattern);
}

std::vector<Amount> Speeds(const std::string& text) {
  static const std::regex kPattern(
      R"((\d[\d,]{0,9}(?:\.\d{1,4})?)(?:\s?-\s?(\d[\d,]{0,9}(?:\.\d{1,4})?))?\s?(?:tok|tokens)(?:/s|\sper\ssecond))");
  return Amounts(text, kPattern);
}

// Returns the number of tokens in texts such as "64K context" and "context of 128K".
std::optional<int64_t> ContextTokens(const std::string& words) {
  static const std::regex kPattern(
      R"((\d{1,5})k(?:\stokens?)?\scontext|context(?:\sof|:)?\s(\d{1,5})k\b)");
  std::smatch match;
  if (!std::regex_search(words, match, kPattern)) return std::nullopt;
  return static_cast<int64_t>(NumberIn(match[1].matched ? match[1] : match[2])) * 1024;
}

std::optional<int64_t> BatchOf(const std::string& words) {
  static const std::regex kPattern(R"((\d{1,5})\)?\s(?:concurrent|simultaneous|parallel))");
  std::smatch match;
  if (std::regex_search(words, match, kPattern)) return static_cast<int64_t>(NumberIn(match[1]));
  if (Has(words, {"single"})) return 1;
  return std::nullopt;
}

std::string Range(const Amount& amount, std::string_view unit) {
  return amount.low == amount.high ? fmt::format("{:g} {}", amount.low, unit)
                                   : fmt::format("{:g}-{:g} {}", amount.low, amount.high, unit);
}

class ClaimChecker {
 public:
  ClaimChecker(const RecipeFacts& facts, const LaunchFacts& launch, std::vector<Finding>& findings)
      : facts_(facts), launch_(launch), findings_(findings) {}

  void Check(const Claim& claim) {
    for (const Amount& amount : Gigabytes(claim.figures)) CheckSize(claim, amount);
    for (const Amount& amount : Speeds(claim.figures)) CheckSpeed(claim, amount);
  }

 private:
  void Add(const Claim& claim, Severity severity, std::string_view rule, std::string text) {
    findings_.push_back({severity, claim.line, std::string(rule), std::move(text)});
  }

  void CheckSize(const Claim& claim, const Amount& amount) {
    const std::string& words = claim.words;
    if (Has(words, {"kv"})) {
      if (const auto context = ContextTokens(words)) {
        CheckContextSize(claim, amount, *context);
      } else {
        CheckCacheShare(claim, amount);
      }
      return;
    }
    if (Has(words, {"model:", "model memory", "model size", "weights", "download", "for model",
                    "checkpoint"}))
      CheckWeights(claim, amount);
  }

  void CheckWeights(const Claim& claim, const Amount& amount) {
    const double gb = ResidentBytes(claim.model) / kGB;
    // The free space that a recipe asks for may be more than needed, but not less.
    const bool space = Has(claim.words, {"free", "disk", "need"});
    const bool too_little = amount.high * (space ? 1 : kTolerance) < gb;
    if (!too_little && (space || amount.low <= gb * kTolerance)) return;
    const ModelShape& shape = claim.model.shape;
    std::string text = fmt::format(
        "{} is not the size of {}'s weights: {:.2f} billion in {} at {:g} bytes and {:.2f} billion "
        "of embedding and head in BF16 are {:.2f} GB",
        Range(amount, "GB"), shape.name, static_cast<double>(shape.LinearWeights()) / kGB,
        WeightFormatName(claim.model.format), BytesPerWeight(claim.model.format),
        static_cast<double>(shape.TotalWeights() - shape.LinearWeights()) / kGB, gb);
    const double four_bits = static_cast<double>(shape.TotalWeights()) / 2 / kGB;
    if (amount.high < four_bits * kTolerance && amount.high * kTolerance > four_bits &&
        BytesPerWeight(claim.model.format) >= 1)
      text += fmt::format("; {} is what four bits a weight take", Range(amount, "GB"));
    Add(claim, Severity::kError, "weights-size", text);
  }

  void CheckContextSize(const Claim& claim, const Amount& amount, int64_t context) {
    StoredModel model = claim.model;
    model.kv_element_bytes = 1;
    const double fp8 = static_cast<double>(KvBytesPerToken(model) * context) / kGB;
    const double bf16 = 2 * fp8;
    if (amount.low <= bf16 * kTolerance && amount.high * kTolerance >= fp8) return;
    Add(claim, Severity::kError, "cache-size",
        fmt::format("{} is not what {} tokens of keys and values take: {} bytes a token in FP8 and "
                    "twice that in BF16 are {:.1f} and {:.1f} GB",
                    Range(amount, "GB"), context, KvBytesPerToken(model), fp8, bf16));
  }

  // Reports a cache that does not fit into the memory left by the weights.
  void CheckCacheShare(const Claim& claim, const Amount& amount) {
    if (facts_.accelerators.empty()) return;
    static const std::regex kFraction(R"(\b0\.\d{1,2}\b|\b(\d{2})%)");
    LaunchFacts launch = launch_;
    launch.stored = claim.model;
    double most = 0;
    const Accelerator* roomiest = nullptr;
    for (const Accelerator* accelerator : facts_.accelerators) {
      std::optional<double> share;
      std::smatch match;
      if (std::regex_search(claim.words, match, kFraction))
        share = match[1].matched ? NumberIn(match[1]) / 100 : NumberIn(match[0]);
      const double bytes = KvCacheBytesOf(launch, *accelerator, share);
      if (roomiest == nullptr || bytes > most) roomiest = accelerator;
      most = std::max(most, bytes);
    }
    if (amount.low * kGB <= most * kTolerance) return;
    Add(claim, Severity::kError, "cache-size",
        fmt::format("{} of cache do not fit: with {:.2f} GB of weights, {} has {:.1f} GB left for "
                    "it at that share of its memory",
                    Range(amount, "GB"), ResidentBytes(claim.model) / kGB, roomiest->name,
                    most / kGB));
  }

  void CheckSpeed(const Claim& claim, const Amount& amount) {
    const auto batch = BatchOf(claim.words);
    if (!batch || facts_.accelerators.empty()) return;
    const int64_t context = ContextTokens(claim.words).value_or(kShortContext);
    double limit = 0;
    const Accelerator* fastest = nullptr;
    for (const Accelerator* accelerator : facts_.accelerators) {
      const double rate = static_cast<double>(*batch) /
                          DecodeStepSeconds(claim.model, *accelerator, static_cast<double>(*batch),
                                            static_cast<double>(context));
      if (rate <= limit) continue;
      limit = rate;
      fastest = accelerator;
    }
    if (amount.high <= limit) return;
    const bool all = amount.low > limit;
    Add(claim, all ? Severity::kError : Severity::kWarning, "speed",
        fmt::format(
            "{} {} {}: a step of {} sequence{} with {} tokens of context reads {:.1f} GB, at {:g} "
            "GB/s that is at most {:.1f} tokens a second on one {}",
            all ? "no" : "the upper part of", Range(amount, "tok/s"),
            all ? "are possible" : "is not possible", *batch, *batch == 1 ? "" : "s", context,
            (WeightBytesPerStep(claim.model, static_cast<double>(*batch)) +
             static_cast<double>(*batch * context * KvBytesPerToken(claim.model))) /
                kGB,
            fastest->bytes_per_second / kGB, limit, fastest->name));
  }

  const RecipeFacts& facts_;
  const LaunchFacts& launch_;
  std::vector<Finding>& findings_;
};

std::vector<std::string> Cells(std::string_view row) {
  std::vector<std::string> cells;
  row.remove_prefix(1);
  while (!row.empty()) {
    const size_t end = std::min(row.find('|'), row.size());
    cells.emplace_back(row.substr(0, end));
    row.remove_prefix(std::min(end + 1, row.size()));
  }
  return cells;
}

// Returns the model in a column's heading, with its format; else `otherwise`, the recipe's model.
StoredModel ModelOfHeading(const std::string& heading, const StoredModel& otherwise) {
  std::string id = heading;
  id.erase(0, std::min(id.find_first_not_of(" *"), id.size()));
  id.erase(id.find_last_not_of(" *") + 1);
  std::replace(id.begin(), id.end(), ' ', '-');
  const auto shape = PublishedShape(id);
  if (!shape) return otherwise;
  StoredModel model = otherwise;
  model.shape = *shape;
  if (const WeightFormat format = FormatOfName(id); format != WeightFormat::kBf16)
    model.format = format;
  return model;
}

// Returns all claims about the model: in lines, table cells and comments of scripts.
std::vector<Claim> ClaimsOf(const RecipeFacts& facts, const StoredModel& model) {
  std::vector<Claim> claims;
  std::vector<std::string> headings;
  int table_line = 0;  // line number of the table's next row
  const auto add_line = [&](int line, const std::string& text) {
    if (text.size() <= kMaxLine) claims.push_back({line, AsciiLower(text), text, model});
  };
  for (const ProseLine& line : facts.document.prose) {
    if (!line.text.starts_with('|')) {
      add_line(line.line, line.text);
      continue;
    }
    if (line.text.size() > kMaxLine) continue;
    const std::vector<std::string> cells = Cells(line.text);
    if (line.line != table_line) headings = cells;
    table_line = line.line + 1;
    for (size_t i = 1; i < cells.size(); ++i) {
      const StoredModel column = i < headings.size() ? ModelOfHeading(headings[i], model) : model;
      claims.push_back({line.line, AsciiLower(cells[0] + " " + cells[i]), cells[i], column});
    }
  }
  for (const ShellScript& script : facts.scripts) {
    for (size_t i = 0; i < script.comments.size(); ++i)
      add_line(script.comment_lines[i], script.comments[i]);
  }
  return claims;
}

}  // namespace

void CheckClaims(const RecipeFacts& facts, std::vector<Finding>& findings) {
  // "The model" in prose refers to the launched model; this is ambiguous if launches use several
  // formats.
  const LaunchFacts* launch = nullptr;
  for (const LaunchFacts& candidate : facts.launches) {
    if (!candidate.stored) continue;
    if (launch != nullptr && candidate.stored->format != launch->stored->format) return;
    launch = &candidate;
  }
  if (launch == nullptr) return;
  ClaimChecker checker(facts, *launch, findings);
  for (const Claim& claim : ClaimsOf(facts, *launch->stored)) checker.Check(claim);
}

}  // namespace sluice
