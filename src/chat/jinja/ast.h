// The syntax tree of a template, and the program: the tree with resolved names.
//
// Names are resolved at compile time by jinja2's own rules (resolver.h): every variable is a slot
// of the function that sets it. So scopes and closures behave exactly as in the Python code that
// jinja2 generates.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/chat_template.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/value.h"

namespace sluice::jinja {

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> keyword;
  ExpressionPointer star;       // *values
  ExpressionPointer star_star;  // **values
};

// A variable: slot `slot` of the function `hops` levels outside the current one.
struct Reference {
  int hops = 0;
  int slot = -1;
};

struct Expression {
  enum class Kind {
    kConstant,
    kName,
    kNamespaceTarget,  // name.attribute, only as the target of `set`.
    kTuple,
    kList,
    kDict,       // operands: key, value, key, value, ...
    kAttribute,  // operands: object; name.
    kItem,       // operands: object, key.
    kSlice,      // operands: object, start, stop, step; null if absent.
    kCall,       // operands: callee.
    kFilter,     // operands: input (null in blocks); name.
    kTest,       // operands: input; name.
    kNot,
    kNegate,
    kPosit,
    kBinary,  // operands: left, right; operator in `binary`.
    kAnd,
    kOr,
    kConcatenate,  // operands: the values that `~` joins.
    kCompare,      // operands: the compared values; the comparison operators are stored between
                   // them.
    kConditional,  // operands: test, value, else value (null if absent).
  };
  enum class Comparison {
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kIn,
    kNotIn
  };

  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // Height of the tree rooted at this node.
  std::string name;
  std::string attribute;  // Used by kNamespaceTarget.
  Value constant;
  std::vector<ExpressionPointer> operands;
  std::unique_ptr<CallArguments> arguments;  // Used by kCall, kFilter, kTest.
  BinaryOperator binary = BinaryOperator::kAdd;
  std::vector<Comparison> comparisons;
  Reference reference;  // Used by kName, kNamespaceTarget; set by the resolver.
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

// The initialization of a variable when its scope is entered.
struct Load {
  enum class Kind {
    kParameter,  // The variable is not initialized, because the statement (such as `for`) assigns
                 // it.
    kResolve,    // The variable gets the value of the template variable `name`.
    kAlias,      // The variable gets the value of variable `source` in an outer scope.
    kMissing,    // The variable is kMissing until it is set.
  };
  Kind kind = Kind::kParameter;
  int slot = 0;
  Reference source;
  std::string name;
};
using Scope = std::vector<Load>;

// A piece of template code that has its own variables: the template, a macro, or the body of a call
// block or of a recursive loop.
struct FunctionInfo {
  const FunctionInfo* parent = nullptr;
  int depth = 0;
  int num_slots = 0;
};

struct Parameter {
  std::string name;
  ExpressionPointer default_value;  // Null if undefined.
  int slot = 0;
};

struct Statement {
  enum class Kind {
    kText,
    kPrint,  // expressions
    kIf,     // branches; `body` is the else branch.
    kFor,
    kSet,       // target, value
    kSetBlock,  // target, value (a chain of filters without input, or null), body
    kMacro,
    kCallBlock,    // `value`: the call.
    kGeneration,   // A block that transformers marks as generated text; its body is written
                   // unchanged.
    kFilterBlock,  // `value`: the chain of filters.
    kWith,         // targets, expressions
    kScope,
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPointer test;
    Block body;
  };

  Kind kind = Kind::kText;
  int line = 0;
  std::string text;  // kText: the text; kMacro: the macro's name.
  std::vector<ExpressionPointer> expressions;
  std::vector<ExpressionPointer> targets;
  ExpressionPointer target;
  ExpressionPointer value;  // kFor: the iterable.
  ExpressionPointer test;   // kFor: the condition after `if`.
  bool is_recursive = false;
  std::vector<Branch> branches;
  Block body;
  Block else_body;
  std::vector<Parameter> parameters;

  // The resolver sets the following members.
  Scope scope;       // Scope of the body.
  Scope test_scope;  // kFor: scope of the condition, which has its own target.
  Scope else_scope;
  ExpressionPointer test_target;
  int loop_slot = -1;                // kFor: slot of the variable `loop`.
  Reference macro;                   // kMacro: the variable that holds the macro.
  FunctionInfo* function = nullptr;  // kMacro, kCallBlock or a recursive loop.
  int caller_slot = -1;  // Slots of a macro's implicit variables; negative if it does not use them.
  int kwargs_slot = -1;
  int varargs_slot = -1;
};

struct Program {
  std::string source;
  std::string name;
  Block body;
  FunctionInfo* main = nullptr;
  Scope scope;
  std::vector<std::unique_ptr<FunctionInfo>> functions;
  std::vector<std::string> variables;
  ChatTemplate::ContentFormat content_format = ChatTemplate::ContentFormat::kString;
  bool reads_thinking = false;
};

}  // namespace sluice::jinja
