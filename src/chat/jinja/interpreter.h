// Runs a compiled template.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "chat/chat_template.h"
#include "chat/jinja/ast.h"

namespace sluice::jinja {

// The variables of one call of a function. If a macro refers to them, they live until the render
// ends.
struct Activation {
  Activation(const FunctionInfo& function, Activation* outer);
  ~Activation();
  std::vector<Value> slots;
  Activation* parent;
  bool is_captured = false;
  size_t bytes;
};

// Runs one render. Thread safety: one thread; used once.
class Interpreter {
 public:
  // REQUIRES: `program` and `variables` outlive the interpreter.
  Interpreter(const Program& program, const json::Value& variables, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Returns the rendered text. Throws Failure.
  std::string Run();

  // --- For built-in functions.

  Value Call(const Value& callee, Arguments arguments);
  std::chrono::local_time<std::chrono::microseconds> Now() const;
  // Keeps a value that a template may make contain itself. The value is emptied when the render
  // ends, to break the cycle.
  void Keep(std::shared_ptr<Namespace> value) { namespaces_.push_back(std::move(value)); }

 private:
  friend class Loop;
  friend class Macro;
  friend class TestedItems;
  enum class Flow { kNext, kBreak, kContinue };
  class Capture;

  // --- Statements (interpreter.cc).
  Flow Execute(const Block& block);
  Flow Execute(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteFor(const Statement& statement);
  Flow ExecuteScope(const Statement& statement);
  void ExecuteSet(const Statement& statement);
  void ExecuteCallBlock(const Statement& statement);
  Flow RunLoop(const Statement& statement, const Value& iterable, int depth);
  // Returns the text that `run` writes in a new activation of the statement's function.
  template <typename Body>
  Value RunInside(const Statement& statement, Activation* outer, const Body& run);
  Value RunRecursiveLoop(const Statement& statement, const Value& iterable, int depth,
                         Activation* outer);
  Value CallMacro(const Statement& statement, Activation* outer, Arguments& arguments);
  void BindParameters(const Statement& statement, Arguments& arguments);
  Value MakeMacro(const Statement& statement);
  void Write(std::string_view text);
  void Enter(const Scope& scope);
  void Leave(const Scope& scope);
  Value Resolve(const std::string& name);
  Value& Slot(const Reference& reference);
  void Assign(const Expression& target, Value value);
  void CheckNamespaces(const Expression& target);

  // --- Expressions (evaluate.cc).
  Value Evaluate(const Expression& expression);
  Value EvaluateName(const Expression& expression);
  Value EvaluateItems(const Expression& expression);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateCall(const Expression& expression, const Value* caller);
  Value EvaluateFilter(const Expression& expression);
  Value EvaluateTest(const Expression& expression);
  Value EvaluateConcatenation(const Expression& expression);
  Value EvaluateComparison(const Expression& expression);
  Value EvaluateConditional(const Expression& expression);
  Arguments EvaluateArguments(const CallArguments* arguments);

  const Program& program_;
  const json::Value& variables_;
  const RenderOptions& options_;
  Budget budget_;
  size_t max_output_bytes_;
  size_t output_bytes_ = 0;  // Total number of bytes in all buffers.
  std::string* out_ = nullptr;
  Activation* frame_ = nullptr;
  const Value* filter_input_ = nullptr;  // Input for the filters of a filter block.
  std::unordered_map<std::string, Value> resolved_;
  std::vector<std::unique_ptr<Activation>> retained_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<class Loop>> loops_;  // Loops on which changed() was called.
};

}  // namespace sluice::jinja
