#include "constraints/xgrammar_engine.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "constraints/bounded_strings.h"

namespace sluice {
namespace {

class XgrammarMatcher final : public TokenMatcher {
 public:
  XgrammarMatcher(const xgrammar::CompiledGrammar& grammar, const WorkLimits& limits)
      : matcher_(grammar), limits_(limits) {}

  bool Advance(int32_t token) override {
    return Guarded([&] { return matcher_.AcceptToken(token); });
  }

  bool FillMask(std::span<uint32_t> mask) override {
    return Guarded([&] {
      int64_t words = static_cast<int64_t>(mask.size());
      DLTensor tensor{};
      tensor.data = mask.data();
      tensor.device = {kDLCPU, 0};
      tensor.ndim = 1;
      tensor.dtype = {kDLInt, 32, 1};
      tensor.shape = &words;
      matcher_.FillNextTokenBitmask(&tensor);
      return true;
    });
  }

  void RollBack(int num_tokens) override { matcher_.Rollback(num_tokens); }
  void Reset() override {
    matcher_.Reset();
    is_broken_ = false;
  }
  bool is_finished() const override { return matcher_.IsTerminated(); }

 private:
  // A matcher that was stopped in the middle of its work is of no use.
  template <typename Work>
  bool Guarded(Work work) {
    if (is_broken_) return false;
    try {
      const WorkBudget budget(limits_);
      return work();
    } catch (const std::exception&) {
      is_broken_ = true;
      return false;
    }
  }

  xgrammar::GrammarMatcher matcher_;
  const WorkLimits limits_;
  bool is_broken_ = false;
};

class XgrammarConstraint final : public Constraint {
 public:
  XgrammarConstraint(xgrammar::CompiledGrammar grammar, const WorkLimits& step)
      : grammar_(std::move(grammar)), bytes_(grammar_.MemorySizeBytes()), step_(step) {}

  std::unique_ptr<TokenMatcher> NewMatcher() const override {
    return std::make_unique<XgrammarMatcher>(grammar_, step_);
  }
  size_t bytes() const override { return bytes_; }

 private:
  const xgrammar::CompiledGrammar grammar_;
  const size_t bytes_;
  const WorkLimits step_;
};

class XgrammarEngine final : public ConstraintEngine {
 public:
  XgrammarEngine(const Vocabulary& vocabulary, const ConstraintLimits& limits)
      : vocabulary_(vocabulary.tokens, xgrammar::VocabType::RAW, vocabulary.size,
                    vocabulary.end_tokens),
        limits_(limits) {}

  Result<std::shared_ptr<const Constraint>> Compile(const ConstraintSpec& spec) const override {
    try {
      // Counted down to the last copy of what was compiled.
      std::optional<xgrammar::CompiledGrammar> grammar;
      {
        const WorkBudget budget(limits_.compile);
        grammar = CompileText(spec);
      }
      auto constraint =
          std::make_shared<const XgrammarConstraint>(*std::move(grammar), limits_.step);
      RETURN_IF_ERROR(CheckCanBegin(*constraint));
      return constraint;
    } catch (const WorkLimitExceeded&) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("it takes more than {} s or {} MiB to compile; make it smaller",
                              limits_.compile.cpu_seconds, limits_.compile.bytes >> 20));
    } catch (const std::exception& exception) {
      return Fail(ErrorCode::kInvalidArgument, exception.what());
    }
  }

 private:
  // A rule that leads to nothing but itself, for example, lets no answer begin.
  Status CheckCanBegin(const Constraint& constraint) const {
    std::vector<uint32_t> mask(MaskWords(vocabulary_.GetVocabSize()));
    const auto matcher = constraint.NewMatcher();
    if (!matcher->FillMask(mask))
      return Fail(ErrorCode::kInvalidArgument, "it takes too long to find what it allows");
    if (std::ranges::all_of(mask, [](uint32_t word) { return word == 0; }))
      return Fail(ErrorCode::kInvalidArgument, "no answer meets it");
    return {};
  }

  xgrammar::CompiledGrammar CompileText(const ConstraintSpec& spec) const {
    // Of one thread, which the budget watches; it has no state of its own but the vocabulary.
    xgrammar::GrammarCompiler compiler(vocabulary_, /*max_threads=*/1, /*cache_enabled=*/false);
    switch (spec.kind) {
      case ConstraintKind::kJsonSchema: return CompileSchema(compiler, spec);
      case ConstraintKind::kRegex: return compiler.CompileRegex(spec.text);
      case ConstraintKind::kEbnf: return compiler.CompileGrammar(spec.text);
      case ConstraintKind::kLark: return compiler.CompileLark(spec.text);
      case ConstraintKind::kStructuralTag: return compiler.CompileStructuralTag(spec.text);
    }
    CHECK(false, "unknown kind of constraint");
  }

  static xgrammar::CompiledGrammar CompileSchema(xgrammar::GrammarCompiler& compiler,
                                                 const ConstraintSpec& spec) {
    const std::optional<std::pair<std::string, std::string>> compact(std::in_place, ",", ":");
    const auto grammar =
        xgrammar::Grammar::FromJSONSchema(spec.text, spec.any_whitespace, /*indent=*/std::nullopt,
                                          spec.any_whitespace ? std::nullopt : compact);
    if (spec.text.find("maxLength") == std::string::npos) return compiler.CompileGrammar(grammar);
    const std::optional<std::string> counted = CountBoundedStrings(grammar.ToString());
    return counted ? compiler.CompileGrammar(*counted) : compiler.CompileGrammar(grammar);
  }

  const xgrammar::TokenizerInfo vocabulary_;
  const ConstraintLimits limits_;
};

}  // namespace

std::unique_ptr<ConstraintEngine> MakeXgrammarEngine(const Vocabulary& vocabulary,
                                                     const ConstraintLimits& limits) {
  CHECK(!vocabulary.end_tokens.empty());
  return std::make_unique<XgrammarEngine>(vocabulary, limits);
}

}  // namespace sluice
