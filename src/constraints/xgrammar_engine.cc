#include "constraints/xgrammar_engine.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "constraints/bounded_strings.h"
#include "constraints/constraint_compiler.h"
#include "constraints/grammar_text.h"
#include "constraints/xgrammar_matcher.h"

namespace sluice {
namespace {

class XgrammarConstraint final : public Constraint {
 public:
  XgrammarConstraint(MatchedGrammar grammar, std::shared_ptr<const CountedVocabulary> vocabulary,
                     const WorkLimits& step)
      : grammar_(std::make_shared<const MatchedGrammar>(std::move(grammar))),
        vocabulary_(std::move(vocabulary)),
        bytes_(grammar_->grammar.MemorySizeBytes() +
               grammar_->bounds.size() * sizeof(StringBounds)),
        step_(step) {}

  std::unique_ptr<TokenMatcher> NewMatcher() const override {
    return NewXgrammarMatcher(grammar_, vocabulary_, step_);
  }
  size_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<const MatchedGrammar> grammar_;
  const std::shared_ptr<const CountedVocabulary> vocabulary_;
  const size_t bytes_;
  const WorkLimits step_;
};

// Maximum number of consecutive white-space characters in the JSON of structural tags. Less than
// kMaxWhitespace, because in structural tags the grammar counts them, at a cost per character.
constexpr int kMaxTagWhitespace = 16;

// Returns the structural tag with a limit of white space in its schemas.
json::Value WithTagWhitespace(const json::Value& value) {
  if (value.is_array()) {
    json::Value::Array parts;
    for (const json::Value& part : value.as_array()) parts.push_back(WithTagWhitespace(part));
    return json::Value(std::move(parts));
  }
  if (!value.is_object()) return value;
  json::Value::Object members;
  for (const auto& [name, part] : value.as_object())
    members.emplace_back(name, name == "json_schema" ? part : WithTagWhitespace(part));
  json::Value bounded(std::move(members));
  const json::Value* type = value.Find("type");
  if (type != nullptr && *type == json::Value("json_schema"))
    bounded.Set("max_whitespace_cnt", json::Value(kMaxTagWhitespace));
  return bounded;
}

class XgrammarEngine final : public ConstraintEngine {
 public:
  XgrammarEngine(const Vocabulary& vocabulary, const ConstraintLimits& limits)
      : vocabulary_(vocabulary.tokens, xgrammar::VocabType::RAW, vocabulary.size,
                    vocabulary.end_tokens),
        counted_(std::make_shared<const CountedVocabulary>(vocabulary)),
        limits_(limits) {}

  Result<std::shared_ptr<const Constraint>> Compile(const ConstraintSpec& spec) const override {
    if (spec.kind != ConstraintKind::kJsonSchema)
      RETURN_IF_ERROR(CheckConstraintText(spec.kind, spec.text));
    try {
      // The budget also covers storing the result in `grammar`.
      std::optional<MatchedGrammar> grammar;
      {
        const WorkBudget budget(limits_.compile);
        grammar = CompileText(spec);
      }
      auto constraint =
          std::make_shared<const XgrammarConstraint>(*std::move(grammar), counted_, limits_.step);
      RETURN_IF_ERROR(CheckCanBegin(*constraint));
      return constraint;
    } catch (const StackLimitExceeded&) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("its rules or brackets are nested too deeply, or without end: "
                              "compiling it takes more than {} MiB of stack; reduce the nesting",
                              ConstraintCompiler::kStackBytes >> 20));
    } catch (const WorkLimitExceeded&) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("it takes more than {} s or {} MiB to compile; make it smaller",
                              limits_.compile.cpu_seconds, limits_.compile.bytes >> 20));
    } catch (const std::bad_alloc&) {
      throw;  // the machine has no memory left, which is not the constraint's fault
    } catch (const std::exception& exception) {
      return Fail(ErrorCode::kInvalidArgument, exception.what());
    }
  }

 private:
  // Fails if no answer can begin, for example because a rule leads only to itself.
  Status CheckCanBegin(const Constraint& constraint) const {
    std::vector<uint32_t> mask(MaskWords(vocabulary_.GetVocabSize()));
    const auto matcher = constraint.NewMatcher();
    if (!matcher->FillMask(mask))
      return Fail(ErrorCode::kInvalidArgument, "computing what it allows takes too long");
    if (std::ranges::all_of(mask, [](uint32_t word) { return word == 0; }))
      return Fail(ErrorCode::kInvalidArgument, "no answer meets it");
    return {};
  }

  MatchedGrammar CompileText(const ConstraintSpec& spec) const {
    // The compiler uses a single thread, which the budget watches, and keeps no state except the
    // vocabulary.
    xgrammar::GrammarCompiler compiler(vocabulary_, /*max_threads=*/1, /*cache_enabled=*/false);
    switch (spec.kind) {
      case ConstraintKind::kJsonSchema: return CompileSchema(compiler, spec);
      case ConstraintKind::kRegex: return {compiler.CompileRegex(spec.text), {}};
      case ConstraintKind::kEbnf: return {compiler.CompileGrammar(spec.text), {}};
      case ConstraintKind::kLark: return {compiler.CompileLark(spec.text), {}};
      case ConstraintKind::kStructuralTag:
        return {compiler.CompileStructuralTag(json::Write(WithTagWhitespace(
                    json::Parse(spec.text).value()))),  // CheckConstraintText has already parsed it
                {}};
    }
    CHECK(false, "unknown kind of constraint");
  }

  static MatchedGrammar CompileSchema(xgrammar::GrammarCompiler& compiler,
                                      const ConstraintSpec& spec) {
    const std::optional<std::pair<std::string, std::string>> compact(std::in_place, ",", ":");
    const auto grammar =
        xgrammar::Grammar::FromJSONSchema(spec.text, spec.any_whitespace, /*indent=*/std::nullopt,
                                          spec.any_whitespace ? std::nullopt : compact);
    if (spec.text.find("Length\"") != std::string::npos) {
      const Result<json::Value> schema = json::Parse(spec.text);
      auto bounded = TakeBoundsOut(grammar.ToString(), !schema || MayOverlap(*schema));
      if (bounded) {
        return {compiler.CompileGrammar(bounded->ebnf), std::move(bounded->bounds),
                spec.any_whitespace};
      }
    }
    return {compiler.CompileGrammar(grammar), {}, spec.any_whitespace};
  }

  const xgrammar::TokenizerInfo vocabulary_;
  const std::shared_ptr<const CountedVocabulary> counted_;
  const ConstraintLimits limits_;
};

}  // namespace

std::unique_ptr<ConstraintEngine> MakeXgrammarEngine(const Vocabulary& vocabulary,
                                                     const ConstraintLimits& limits) {
  CHECK(!vocabulary.end_tokens.empty());
  return std::make_unique<XgrammarEngine>(vocabulary, limits);
}

}  // namespace sluice
