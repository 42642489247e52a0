// Evaluates expressions.
#include "chat/jinja/filters.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

Value Interpreter::Evaluate(const Expression& expression) {
  using Kind = Expression::Kind;
  budget_.Spend(1);
  if (expression.kind == Kind::kConstant) return expression.constant;
  if (expression.kind == Kind::kName) return EvaluateName(expression);
  const Budget::Level level(budget_);
  const auto operand = [&](size_t i) { return Evaluate(*expression.operands[i]); };
  switch (expression.kind) {
    case Kind::kTuple:
    case Kind::kList: return EvaluateItems(expression);
    case Kind::kDict: return EvaluateDict(expression);
    case Kind::kAttribute: return GetAttribute(operand(0), expression.name);
    case Kind::kItem: {
      const Value object = operand(0);
      return GetItem(object, operand(1));
    }
    case Kind::kSlice: return EvaluateSlice(expression);
    case Kind::kCall: return EvaluateCall(expression, nullptr);
    case Kind::kFilter: return EvaluateFilter(expression);
    case Kind::kTest: return EvaluateTest(expression);
    case Kind::kNot: return Value::Bool(!Truth(operand(0)));
    case Kind::kNegate: return Negate(operand(0));
    case Kind::kPosit: return Posit(operand(0));
    case Kind::kBinary: {
      const Value left = operand(0);
      return Apply(expression.binary, left, operand(1));
    }
    case Kind::kAnd: {
      Value left = operand(0);
      return Truth(left) ? operand(1) : left;
    }
    case Kind::kOr: {
      Value left = operand(0);
      return Truth(left) ? left : operand(1);
    }
    case Kind::kConcatenate: return EvaluateConcatenation(expression);
    case Kind::kCompare: return EvaluateComparison(expression);
    case Kind::kConditional: return EvaluateConditional(expression);
    case Kind::kConstant:
    case Kind::kName:
    case Kind::kNamespaceTarget: break;
  }
  return Value::None();
}

Value Interpreter::EvaluateName(const Expression& expression) {
  const Value& value = Slot(expression.reference);
  return value.is_missing() ? Value::UndefinedName(expression.name) : value;
}

Value Interpreter::EvaluateItems(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.operands.size());
  for (const auto& operand : expression.operands) items.push_back(Evaluate(*operand));
  return expression.kind == Expression::Kind::kList ? Value::List(std::move(items))
                                                    : Value::Tuple(std::move(items));
}

Value Interpreter::EvaluateDict(const Expression& expression) {
  auto dict = std::make_shared<DictData>();
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    Value key = Evaluate(*expression.operands[i]);
    dict->Set(std::move(key), Evaluate(*expression.operands[i + 1]));
  }
  return Value::Dict(std::move(dict));
}

Value Interpreter::EvaluateSlice(const Expression& expression) {
  const Value object = Evaluate(*expression.operands[0]);
  const auto bound = [&](size_t i) {
    return expression.operands[i] == nullptr ? Value::None() : Evaluate(*expression.operands[i]);
  };
  const Value start = bound(1);
  const Value stop = bound(2);
  return GetSlice(object, start, stop, bound(3));
}

Arguments Interpreter::EvaluateArguments(const CallArguments* source) {
  Arguments arguments;
  if (source == nullptr) return arguments;
  for (const auto& argument : source->positional)
    arguments.positional.push_back(Evaluate(*argument));
  if (source->star != nullptr) {
    const Value values = Evaluate(*source->star);
    if (TryIterate(values) == nullptr) {
      FailType("Value after * must be an iterable, not " + values.TypeName());
    }
    for (Value& value : ToVector(values)) arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : source->keyword)
    arguments.keyword.emplace_back(name, Evaluate(*argument));
  if (source->star_star != nullptr) {
    const Value values = Evaluate(*source->star_star);
    if (!values.is_dict())
      FailType("argument after ** must be a mapping, not " + values.TypeName());
    for (const auto& [key, value] : values.dict().entries()) {
      if (!key.is_string()) FailType("keywords must be strings");
      for (const auto& [name, unused] : arguments.keyword) {
        budget_.Spend(1);
        if (name == key.text()) FailType("got multiple values for keyword argument '" + name + "'");
      }
      arguments.keyword.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Value Interpreter::Call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) callee.FailUndefined();
  if (callee.kind() != Kind::kObject || !callee.object().IsCallable()) {
    FailType("'" + callee.TypeName() + "' object is not callable");
  }
  // Keeps the callee alive while it runs, even if the call changes the variable that contains the
  // callee.
  const Value kept = callee;  // NOLINT(performance-unnecessary-copy-initialization)
  return kept.object().Call(*this, std::move(arguments));
}

Value Interpreter::EvaluateCall(const Expression& expression, const Value* caller) {
  const Value callee = Evaluate(*expression.operands[0]);
  Arguments arguments = EvaluateArguments(expression.arguments.get());
  if (caller != nullptr) arguments.keyword.emplace_back("caller", *caller);
  return Call(callee, std::move(arguments));
}

Value Interpreter::EvaluateFilter(const Expression& expression) {
  const Value input =
      expression.operands[0] == nullptr ? *filter_input_ : Evaluate(*expression.operands[0]);
  Arguments arguments = EvaluateArguments(expression.arguments.get());
  return CallFilter(*this, expression.name, input, arguments);
}

Value Interpreter::EvaluateTest(const Expression& expression) {
  const Value input = Evaluate(*expression.operands[0]);
  Arguments arguments = EvaluateArguments(expression.arguments.get());
  return Value::Bool(CallTest(expression.name, input, arguments));
}

Value Interpreter::EvaluateConcatenation(const Expression& expression) {
  std::string text;
  for (const auto& operand : expression.operands) {
    AppendStr(text, Evaluate(*operand));
  }
  return Value::String(std::move(text));
}

Value Interpreter::EvaluateComparison(const Expression& expression) {
  using Comparison = Expression::Comparison;
  Value left = Evaluate(*expression.operands[0]);
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = Evaluate(*expression.operands[i + 1]);
    bool holds = false;
    switch (expression.comparisons[i]) {
      case Comparison::kEqual: holds = Equal(left, right); break;
      case Comparison::kNotEqual: holds = !Equal(left, right); break;
      case Comparison::kLess: holds = Compare(Order::kLess, left, right); break;
      case Comparison::kLessEqual: holds = Compare(Order::kLessEqual, left, right); break;
      case Comparison::kGreater: holds = Compare(Order::kGreater, left, right); break;
      case Comparison::kGreaterEqual: holds = Compare(Order::kGreaterEqual, left, right); break;
      case Comparison::kIn: holds = Contains(right, left); break;
      case Comparison::kNotIn: holds = !Contains(right, left); break;
    }
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateConditional(const Expression& expression) {
  if (Truth(Evaluate(*expression.operands[0]))) return Evaluate(*expression.operands[1]);
  if (expression.operands[2] != nullptr) return Evaluate(*expression.operands[2]);
  return Value::Undefined("the inline if-expression on line " + std::to_string(expression.line) +
                          " evaluated to false and no else section was defined.");
}

}  // namespace sluice::jinja
