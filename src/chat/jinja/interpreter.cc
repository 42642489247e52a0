#include "chat/jinja/interpreter.h"

#include <algorithm>
#include <ctime>

#include "chat/jinja/globals.h"
#include "chat/jinja/loop.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

// Returns the approximate number of bytes in the variables. The limits of a render grow with this
// number.
size_t CountBytes(const json::Value& value) {
  switch (value.type()) {
    case json::Type::kString: return value.as_string().size() + 8;
    case json::Type::kArray: {
      size_t bytes = 8;
      for (const json::Value& item : value.as_array()) bytes += CountBytes(item);
      return bytes;
    }
    case json::Type::kObject: {
      size_t bytes = 8;
      for (const auto& [key, member] : value.as_object())
        bytes += key.size() + 8 + CountBytes(member);
      return bytes;
    }
    default: return 8;
  }
}

}  // namespace

Activation::Activation(const FunctionInfo& function, Activation* outer)
    : parent(outer), bytes(static_cast<size_t>(function.num_slots) * sizeof(Value) + 96) {
  Spend(function.num_slots / 8);
  if (Budget* budget = Budget::Current()) budget->Take(bytes);
  slots.resize(static_cast<size_t>(function.num_slots));
}
Activation::~Activation() {
  if (Budget* budget = Budget::Current()) budget->GiveBack(bytes);
}

// Collects the output in a separate text during its lifetime.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), outer_(interpreter.out_) {
    interpreter_.out_ = &text_;
  }
  ~Capture() { Restore(); }
  Value Take() {
    Restore();
    SpendText(text_.size());
    return Value::String(std::move(text_));
  }

 private:
  void Restore() {
    if (interpreter_.out_ != &text_) return;
    interpreter_.output_bytes_ -= text_.size();
    interpreter_.out_ = outer_;
  }
  Interpreter& interpreter_;
  std::string* outer_;
  std::string text_;
};

Interpreter::Interpreter(const Program& program, const json::Value& variables,
                         const RenderOptions& options)
    : program_(program),
      variables_(variables),
      options_(options),
      budget_(options.limits.max_steps + 8 * static_cast<int64_t>(CountBytes(variables)),
              options.limits.max_memory_bytes + 16 * CountBytes(variables),
              options.limits.max_output_bytes + CountBytes(variables), options.limits.max_depth,
              options.is_cancelled),
      max_output_bytes_(budget_.max_string_bytes()) {}

Interpreter::~Interpreter() {
  // Breaks reference cycles between values. Every cycle contains one of the objects that are
  // cleared.
  const Budget::Scope scope(&budget_);
  for (const auto& loop : loops_) loop->ForgetChanges();
  for (const auto& activation : retained_) activation->slots.clear();
  for (const auto& space : namespaces_) space->Clear();
  loops_.clear();
  retained_.clear();
  namespaces_.clear();
  resolved_.clear();
}

std::string Interpreter::Run() {
  const Budget::Scope scope(&budget_);
  retained_.push_back(std::make_unique<Activation>(*program_.main, nullptr));
  frame_ = retained_.back().get();
  std::string text;
  out_ = &text;
  Enter(program_.scope);
  Execute(program_.body);
  return text;
}

std::chrono::local_time<std::chrono::microseconds> Interpreter::Now() const {
  if (options_.now) return *options_.now;
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm fields{};
  localtime_r(&seconds, &fields);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
      now - std::chrono::floor<std::chrono::seconds>(now));
  const auto date = std::chrono::year(fields.tm_year + 1900) /
                    std::chrono::month(static_cast<unsigned>(fields.tm_mon) + 1) /
                    std::chrono::day(static_cast<unsigned>(fields.tm_mday));
  return std::chrono::local_days(date) + std::chrono::hours(fields.tm_hour) +
         std::chrono::minutes(fields.tm_min) + std::chrono::seconds(fields.tm_sec) + micros;
}

void Interpreter::Write(std::string_view text) {
  output_bytes_ += text.size();
  if (output_bytes_ > max_output_bytes_) {
    Fail(FailureKind::kLimit,
         "the chat template writes more than " + std::to_string(max_output_bytes_) + " bytes");
  }
  budget_.Spend(static_cast<int64_t>(text.size() / 64));
  *out_ += text;
}

// --- Variables.

Value& Interpreter::Slot(const Reference& reference) {
  Activation* activation = frame_;
  for (int i = 0; i < reference.hops; ++i) activation = activation->parent;
  return activation->slots[static_cast<size_t>(reference.slot)];
}

Value Interpreter::Resolve(const std::string& name) {
  const auto found = resolved_.find(name);
  if (found != resolved_.end()) return found->second;
  Value value;
  if (const json::Value* variable = variables_.Find(name)) {
    value = Value::FromJson(*variable);
  } else if (IsGlobal(name)) {
    value = MakeGlobal(name);
  }
  return resolved_.emplace(name, std::move(value)).first->second;
}

void Interpreter::Enter(const Scope& scope) {
  for (const Load& load : scope) {
    Value& slot = frame_->slots[static_cast<size_t>(load.slot)];
    switch (load.kind) {
      case Load::Kind::kParameter: break;
      case Load::Kind::kResolve: slot = Resolve(load.name); break;
      case Load::Kind::kAlias: slot = Slot(load.source); break;
      case Load::Kind::kMissing: slot = Value(); break;
    }
  }
  budget_.Spend(static_cast<int64_t>(scope.size()));
}

void Interpreter::Leave(const Scope& scope) {
  for (const Load& load : scope) frame_->slots[static_cast<size_t>(load.slot)] = Value();
}

void Interpreter::CheckNamespaces(const Expression& target) {
  if (target.kind == Expression::Kind::kNamespaceTarget &&
      Slot(target.reference).As<Namespace>() == nullptr) {
    Fail(FailureKind::kRuntime, "cannot assign attribute on non-namespace object");
  }
  for (const auto& operand : target.operands) CheckNamespaces(*operand);
}

void Interpreter::Assign(const Expression& target, Value value) {
  switch (target.kind) {
    case Expression::Kind::kName: Slot(target.reference) = std::move(value); return;
    case Expression::Kind::kNamespaceTarget: {
      auto* space = Slot(target.reference).As<Namespace>();
      if (space == nullptr)
        Fail(FailureKind::kRuntime, "cannot assign attribute on non-namespace object");
      space->Set(target.attribute, std::move(value));
      return;
    }
    default: break;
  }
  if (TryIterate(value) == nullptr)
    FailType("cannot unpack non-iterable " + value.TypeName() + " object");
  const std::vector<Value> items = ToVector(value);
  const std::string expected = "(expected " + std::to_string(target.operands.size());
  if (items.size() > target.operands.size())
    FailValue("too many values to unpack " + expected + ")");
  if (items.size() < target.operands.size()) {
    FailValue("not enough values to unpack " + expected + ", got " + std::to_string(items.size()) +
              ")");
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.operands[i], items[i]);
}

// --- Statements.

Interpreter::Flow Interpreter::Execute(const Block& block) {
  const Budget::Level level(budget_);
  for (const auto& statement : block) {
    budget_.Spend(1);
    try {
      const Flow flow = Execute(*statement);
      if (flow != Flow::kNext) return flow;
    } catch (Failure& failure) {
      if (failure.line == 0) failure.line = statement->line;
      throw;
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::kText: Write(statement.text); break;
    case Statement::Kind::kPrint:
      for (const auto& expression : statement.expressions) {
        const Value value = Evaluate(*expression);
        if (value.is_string()) {
          Write(value.text());
        } else {
          Write(Str(value));
        }
      }
      break;
    case Statement::Kind::kIf: return ExecuteIf(statement);
    case Statement::Kind::kFor: return ExecuteFor(statement);
    case Statement::Kind::kSet: ExecuteSet(statement); break;
    case Statement::Kind::kMacro: Slot(statement.macro) = MakeMacro(statement); break;
    case Statement::Kind::kCallBlock: ExecuteCallBlock(statement); break;
    case Statement::Kind::kGeneration: {
      Arguments none;
      Write(CallMacro(statement, frame_, none).text());
      break;
    }
    case Statement::Kind::kSetBlock:
    case Statement::Kind::kFilterBlock:
    case Statement::Kind::kWith:
    case Statement::Kind::kScope: return ExecuteScope(statement);
    case Statement::Kind::kBreak: return Flow::kBreak;
    case Statement::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& statement) {
  for (const auto& branch : statement.branches) {
    if (Truth(Evaluate(*branch.test))) return Execute(branch.body);
  }
  return Execute(statement.else_body);
}

void Interpreter::ExecuteSet(const Statement& statement) {
  CheckNamespaces(*statement.target);
  Assign(*statement.target, Evaluate(*statement.value));
}

Interpreter::Flow Interpreter::ExecuteScope(const Statement& statement) {
  const bool captures = statement.kind == Statement::Kind::kSetBlock ||
                        statement.kind == Statement::Kind::kFilterBlock;
  Enter(statement.scope);
  if (!captures) {
    for (size_t i = 0; i < statement.targets.size(); ++i) {
      Assign(*statement.targets[i], Evaluate(*statement.expressions[i]));
    }
    const Flow flow = Execute(statement.body);
    Leave(statement.scope);
    return flow;
  }
  Capture capture(*this);
  const Flow flow = Execute(statement.body);
  Value text = capture.Take();
  if (flow != Flow::kNext) return flow;
  if (statement.value != nullptr) {
    const Value* outer = std::exchange(filter_input_, &text);
    Value filtered;
    try {
      filtered = Evaluate(*statement.value);
    } catch (...) {
      filter_input_ = outer;
      throw;
    }
    filter_input_ = outer;
    text = std::move(filtered);
  }
  if (statement.kind == Statement::Kind::kSetBlock) {
    Assign(*statement.target, std::move(text));
  } else {
    Write(Str(text));
  }
  Leave(statement.scope);
  return Flow::kNext;
}

// --- Loops.

// Iterates over the items of a loop that satisfy its `if`. The condition is evaluated when an item
// is requested.
class TestedItems final : public Iterator {
 public:
  TestedItems(Interpreter& interpreter, const Statement& statement, IteratorPointer source)
      : interpreter_(interpreter),
        statement_(statement),
        source_(std::move(source)),
        frame_(interpreter.frame_) {}

 private:
  bool Advance(Value& value) override {
    while (source_->Next(value)) {
      Activation* outer = std::exchange(interpreter_.frame_, frame_);
      bool holds = false;
      try {
        interpreter_.Assign(*statement_.test_target, value);
        holds = Truth(interpreter_.Evaluate(*statement_.test));
      } catch (...) {
        interpreter_.frame_ = outer;
        throw;
      }
      interpreter_.frame_ = outer;
      if (holds) return true;
    }
    return false;
  }

  Interpreter& interpreter_;
  const Statement& statement_;
  IteratorPointer source_;
  Activation* frame_;
};

Interpreter::Flow Interpreter::ExecuteFor(const Statement& statement) {
  const Value iterable = Evaluate(*statement.value);
  if (!statement.is_recursive) return RunLoop(statement, iterable, 0);
  frame_->is_captured = true;
  const Value text = RunRecursiveLoop(statement, iterable, 0, frame_);
  Write(text.text());
  return Flow::kNext;
}

template <typename Body>
Value Interpreter::RunInside(const Statement& statement, Activation* outer, const Body& run) {
  const Budget::Level level(budget_);
  auto activation = std::make_unique<Activation>(*statement.function, outer);
  Activation* const caller = std::exchange(frame_, activation.get());
  Capture capture(*this);
  const auto leave = [&] {
    frame_ = caller;
    if (activation->is_captured) retained_.push_back(std::move(activation));
  };
  try {
    run();
  } catch (...) {
    leave();
    throw;
  }
  leave();
  return capture.Take();
}

Value Interpreter::RunRecursiveLoop(const Statement& statement, const Value& iterable, int depth,
                                    Activation* outer) {
  return RunInside(statement, outer, [&] { RunLoop(statement, iterable, depth); });
}

Interpreter::Flow Interpreter::RunLoop(const Statement& statement, const Value& iterable,
                                       int depth) {
  IteratorPointer items = Iterate(iterable);
  const bool is_tested = statement.test != nullptr;
  if (is_tested) {
    Enter(statement.test_scope);
    items = std::make_shared<TestedItems>(*this, statement, std::move(items));
  }
  const bool has_length =
      !is_tested && (iterable.kind() != Kind::kObject || iterable.object().Length().has_value());
  const auto loop = std::make_shared<Loop>(iterable, std::move(items), has_length, depth,
                                           statement.is_recursive ? &statement : nullptr,
                                           statement.is_recursive ? frame_->parent : nullptr);
  const Value loop_value = Value::FromObject(loop);
  bool is_else =
      // Whether to run the else branch: false once an iteration has reached the end of the body,
      // without `continue`.
      true;
  Value item;
  const auto run = [&] {
    while (loop->Advance(item)) {
      frame_->slots[static_cast<size_t>(statement.loop_slot)] = loop_value;
      Assign(*statement.target, std::move(item));
      Enter(statement.scope);
      const Flow flow = Execute(statement.body);
      if (flow == Flow::kBreak) break;
      if (flow == Flow::kNext) is_else = false;
    }
  };
  try {
    run();
  } catch (...) {
    loop->Close();
    throw;
  }
  loop->Close();
  Leave(statement.scope);
  if (is_tested) Leave(statement.test_scope);
  if (!is_else || statement.else_body.empty()) return Flow::kNext;
  Enter(statement.else_scope);
  const Flow flow = Execute(statement.else_body);
  Leave(statement.else_scope);
  return flow;
}

// --- Macros.

Value Interpreter::MakeMacro(const Statement& statement) {
  frame_->is_captured = true;
  return Value::FromObject(std::make_shared<Macro>(statement, frame_));
}

void Interpreter::ExecuteCallBlock(const Statement& statement) {
  const Value caller = MakeMacro(statement);
  Write(Str(EvaluateCall(*statement.value, &caller)));
}

void Interpreter::BindParameters(const Statement& statement, Arguments& arguments) {
  const auto take = [&](std::string_view name) {
    budget_.Spend(static_cast<int64_t>(arguments.keyword.size() / 4));
    for (auto it = arguments.keyword.begin(); it != arguments.keyword.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      arguments.keyword.erase(it);
      return value;
    }
    return Value();
  };
  const auto slot = [&](int index) -> Value& { return frame_->slots[static_cast<size_t>(index)]; };
  const std::string name =
      statement.kind == Statement::Kind::kMacro ? Repr(Value::String(statement.text)) : "None";
  for (size_t i = 0; i < statement.parameters.size(); ++i) {
    const Parameter& parameter = statement.parameters[i];
    slot(parameter.slot) =
        i < arguments.positional.size() ? arguments.positional[i] : take(parameter.name);
  }
  if (statement.caller_slot >= 0) {
    Value caller = take("caller");
    slot(statement.caller_slot) = caller.is_missing() || caller.is_none()
                                      ? Value::Undefined("No caller defined")
                                      : std::move(caller);
  }
  if (statement.kwargs_slot >= 0) {
    auto dict = std::make_shared<DictData>();
    for (auto& [key, value] : arguments.keyword) dict->Set(Value::String(key), std::move(value));
    slot(statement.kwargs_slot) = Value::Dict(std::move(dict));
  } else if (!arguments.keyword.empty()) {
    for (const auto& [key, value] : arguments.keyword) {
      if (key == "caller") {
        FailType("macro " + name +
                 " was invoked with two values for the special caller argument. This is most "
                 "likely a bug.");
      }
    }
    FailType("macro " + name + " takes no keyword argument " +
             Repr(Value::String(arguments.keyword[0].first)));
  }
  const size_t count = std::min(arguments.positional.size(), statement.parameters.size());
  if (statement.varargs_slot >= 0) {
    slot(statement.varargs_slot) = Value::Tuple(
        std::vector<Value>(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                           arguments.positional.end()));
  } else if (arguments.positional.size() > count) {
    FailType("macro " + name + " takes not more than " +
             std::to_string(statement.parameters.size()) + " argument(s)");
  }
}

Value Interpreter::CallMacro(const Statement& statement, Activation* outer, Arguments& arguments) {
  return RunInside(statement, outer, [&] {
    BindParameters(statement, arguments);
    Enter(statement.scope);
    for (const Parameter& parameter : statement.parameters) {
      Value& slot = frame_->slots[static_cast<size_t>(parameter.slot)];
      if (!slot.is_missing()) continue;
      if (parameter.default_value == nullptr) {
        slot = Value::Undefined("parameter '" + parameter.name + "' was not provided");
      } else {
        Value value = Evaluate(*parameter.default_value);
        frame_->slots[static_cast<size_t>(parameter.slot)] = std::move(value);
      }
    }
    Execute(statement.body);
  });
}

}  // namespace sluice::jinja
