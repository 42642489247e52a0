#include "chat/jinja/resolver.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "chat/jinja/filters.h"
#include "chat/jinja/globals.h"
#include "chat/jinja/visit.h"

namespace sluice::jinja {

namespace {

[[noreturn]] void FailAt(int line, std::string message) {
  throw Failure{FailureKind::kSyntax, std::move(message), line};
}

// Limit of work. Copying symbol tables makes resolving quadratic in the worst case; no real
// template comes near this limit.
constexpr int64_t kMaxWork = 2'000'000;

// A variable: one slot of a function.
struct Variable {
  const FunctionInfo* function = nullptr;
  int slot = -1;
  friend auto operator<=>(const Variable&, const Variable&) = default;
};

struct Action {
  Load::Kind kind = Load::Kind::kParameter;
  Variable source;   // Used by kAlias.
  std::string name;  // Used by kResolve.
};

// The variables of one scope.
class Symbols {
 public:
  // `tag` distinguishes scopes that would otherwise share slots. Scopes of the same level within a
  // function share slots.
  Symbols(const Symbols* parent, FunctionInfo* function, std::map<std::string, int>& slots,
          std::string tag)
      : parent_(parent), function_(function), slots_(&slots), tag_(std::move(tag)) {}

  FunctionInfo* function() const { return function_; }
  const std::map<Variable, Action>& loads() const { return loads_; }
  size_t size() const { return refs_.size(); }

  const Variable* Find(const std::string& name) const {
    const auto found = refs_.find(name);
    if (found != refs_.end()) return &found->second;
    return parent_ == nullptr ? nullptr : parent_->Find(name);
  }
  void OnLoad(const std::string& name) {
    if (Find(name) == nullptr) Define(name, {Load::Kind::kResolve, {}, name});
  }
  void OnStore(const std::string& name) {
    stores_.insert(name);
    if (refs_.contains(name)) return;
    const Variable* outer = parent_ == nullptr ? nullptr : parent_->Find(name);
    if (outer != nullptr) {
      Define(name, {Load::Kind::kAlias, *outer, {}});
    } else {
      Define(name, {Load::Kind::kMissing, {}, {}});
    }
  }
  int OnParameter(const std::string& name) {
    stores_.insert(name);
    return Define(name, {Load::Kind::kParameter, {}, {}});
  }
  // Merges the branches of a condition. A variable that only some branches set keeps its outer
  // value in the others.
  void Merge(const std::vector<Symbols>& branches) {
    std::set<std::string> stores;
    for (const Symbols& branch : branches)
      stores.insert(branch.stores_.begin(), branch.stores_.end());
    for (const std::string& name : stores_) stores.erase(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, variable] : branch.refs_) refs_[name] = variable;
      for (const auto& [variable, action] : branch.loads_) loads_[variable] = action;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const std::string& name : stores) {
      const Variable target = *Find(name);
      const Variable* outer = parent_ == nullptr ? nullptr : parent_->Find(name);
      if (outer != nullptr) {
        loads_[target] = {Load::Kind::kAlias, *outer, {}};
      } else {
        loads_[target] = {Load::Kind::kResolve, {}, name};
      }
    }
  }

 private:
  int Define(const std::string& name, Action action) {
    const auto [found, is_new] = slots_->try_emplace(tag_ + name, function_->num_slots);
    if (is_new) ++function_->num_slots;
    const Variable variable{function_, found->second};
    refs_[name] = variable;
    loads_[variable] = std::move(action);
    return variable.slot;
  }

  const Symbols* parent_;
  FunctionInfo* function_;
  std::map<std::string, int>* slots_;
  std::string tag_;
  std::unordered_map<std::string, Variable> refs_;
  std::map<Variable, Action> loads_;
  std::set<std::string> stores_;
};

class Resolver {
 public:
  explicit Resolver(Program& program) : program_(program) {}

  void Run() {
    program_.main = NewFunction(nullptr);
    Symbols symbols(nullptr, program_.main, Slots(program_.main), "0 ");
    Analyze(program_.body, symbols);
    Visit(program_.body, symbols, {});
    program_.scope = Enter(symbols);
    program_.variables.assign(variables_.begin(), variables_.end());
  }

 private:
  // The context of a statement.
  struct Place {
    bool in_loop = false;  // Inside a loop, where `break` is allowed.
    // Inside a condition, where unknown filters fail only when they are evaluated.
    bool is_soft = false;
    int level = 0;
  };

  std::map<std::string, int>& Slots(const FunctionInfo* function) { return slots_[function]; }

  FunctionInfo* NewFunction(const FunctionInfo* parent) {
    program_.functions.push_back(std::make_unique<FunctionInfo>());
    FunctionInfo* function = program_.functions.back().get();
    function->parent = parent;
    function->depth = parent == nullptr ? 0 : parent->depth + 1;
    return function;
  }

  Symbols Inner(const Symbols& outer, FunctionInfo* function, const Place& place,
                const char* suffix = " ") {
    return Symbols(&outer, function, Slots(function), std::to_string(place.level + 1) + suffix);
  }

  static Reference Refer(const Variable& variable, const FunctionInfo* from) {
    return {from->depth - variable.function->depth, variable.slot};
  }

  Scope Enter(const Symbols& symbols) {
    Scope scope;
    for (const auto& [variable, action] : symbols.loads()) {
      Load load;
      load.kind = action.kind;
      load.slot = variable.slot;
      if (action.kind == Load::Kind::kAlias) load.source = Refer(action.source, symbols.function());
      if (action.kind == Load::Kind::kResolve) {
        load.name = action.name;
        if (!IsGlobal(action.name)) variables_.insert(action.name);
      }
      scope.push_back(std::move(load));
    }
    return scope;
  }

  void Work(size_t amount) {
    work_ += static_cast<int64_t>(amount);
    if (work_ > kMaxWork) FailAt(1, "the template is too large");
  }

  // --- First pass over a scope: finds the names that it loads and stores, without inner scopes.

  void Analyze(const Expression& expression, Use use, Symbols& symbols) {
    VisitNames(expression, use, [&](const std::string& name, Use how, int) {
      Work(1);
      if (how == Use::kLoad) symbols.OnLoad(name);
      if (how == Use::kStore) symbols.OnStore(name);
      if (how == Use::kParameter) symbols.OnParameter(name);
      return true;
    });
  }

  void Analyze(const Block& block, Symbols& symbols) {
    for (const auto& statement : block) Analyze(*statement, symbols);
  }

  void Analyze(const Statement& statement, Symbols& symbols) {
    switch (statement.kind) {
      case Statement::Kind::kPrint:
      case Statement::Kind::kWith:
        for (const auto& expression : statement.expressions)
          Analyze(*expression, Use::kLoad, symbols);
        return;
      case Statement::Kind::kIf: AnalyzeIf(statement, 0, symbols); return;
      case Statement::Kind::kFor:
      case Statement::Kind::kCallBlock:
      case Statement::Kind::kFilterBlock: Analyze(*statement.value, Use::kLoad, symbols); return;
      case Statement::Kind::kSet:
        Analyze(*statement.value, Use::kLoad, symbols);
        Analyze(*statement.target, Use::kStore, symbols);
        return;
      case Statement::Kind::kSetBlock: Analyze(*statement.target, Use::kStore, symbols); return;
      case Statement::Kind::kMacro: symbols.OnStore(statement.text); return;
      default: return;
    }
  }

  // Analyzes an `if` from branch `first` on. An `elif` counts as a condition nested in the previous
  // branch.
  void AnalyzeIf(const Statement& statement, size_t first, Symbols& symbols) {
    Analyze(*statement.branches[first].test, Use::kLoad, symbols);
    std::vector<Symbols> branches;
    Work(symbols.size() * 3);
    branches.push_back(symbols);
    Analyze(statement.branches[first].body, branches.back());
    if (first == 0) {
      // jinja2 treats all `elif` of an `if` as siblings, each with a test and a body.
      branches.push_back(symbols);
      for (size_t i = 1; i < statement.branches.size(); ++i)
        AnalyzeElif(statement.branches[i], branches.back());
      branches.push_back(symbols);
      Analyze(statement.else_body, branches.back());
    }
    Merge(branches, symbols);
  }

  void Merge(const std::vector<Symbols>& branches, Symbols& symbols) {
    for (const Symbols& branch : branches) Work(branch.size() * 3);
    symbols.Merge(branches);
  }

  void AnalyzeElif(const Statement::Branch& branch, Symbols& symbols) {
    Analyze(*branch.test, Use::kLoad, symbols);
    Work(symbols.size() * 3);
    std::vector<Symbols> branches = {symbols};
    Analyze(branch.body, branches[0]);
    Merge(branches, symbols);
  }

  // --- Second pass: resolves every name, and determines how every scope initializes its variables.

  void Visit(Expression& expression, const Symbols& symbols, bool is_soft) {
    switch (expression.kind) {
      case Expression::Kind::kName:
      case Expression::Kind::kNamespaceTarget: {
        const Variable* variable = symbols.Find(expression.name);
        if (variable == nullptr)
          FailAt(expression.line, "the name '" + expression.name + "' cannot be used here");
        expression.reference = Refer(*variable, symbols.function());
        return;
      }
      case Expression::Kind::kFilter:
        if (!is_soft && !IsFilter(expression.name))
          FailAt(expression.line, "No filter named '" + expression.name + "'.");
        break;
      case Expression::Kind::kTest:
        if (!is_soft && !IsTest(expression.name))
          FailAt(expression.line, "No test named '" + expression.name + "'.");
        break;
      default: break;
    }
    const bool inner_is_soft = is_soft || expression.kind == Expression::Kind::kConditional;
    const auto visit = [&](const ExpressionPointer& inner) {
      if (inner != nullptr) Visit(*inner, symbols, inner_is_soft);
    };
    for (const auto& operand : expression.operands) visit(operand);
    if (expression.arguments == nullptr) return;
    for (const auto& argument : expression.arguments->positional) visit(argument);
    for (const auto& [name, argument] : expression.arguments->keyword) visit(argument);
    visit(expression.arguments->star);
    visit(expression.arguments->star_star);
  }

  void Visit(Block& block, const Symbols& symbols, const Place& place) {
    for (const auto& statement : block) Visit(*statement, symbols, place);
  }

  void Visit(Statement& statement, const Symbols& symbols, const Place& place) {
    Place inner = place;
    ++inner.level;
    inner.is_soft = false;
    switch (statement.kind) {
      case Statement::Kind::kText: return;
      case Statement::Kind::kPrint:
        for (const auto& expression : statement.expressions)
          Visit(*expression, symbols, place.is_soft);
        return;
      case Statement::Kind::kIf: {
        Place soft = place;
        soft.is_soft = true;
        for (auto& branch : statement.branches) {
          Visit(*branch.test, symbols, true);
          Visit(branch.body, symbols, soft);
        }
        Visit(statement.else_body, symbols, soft);
        return;
      }
      case Statement::Kind::kSet:
        Visit(*statement.value, symbols, place.is_soft);
        Visit(*statement.target, symbols, place.is_soft);
        return;
      case Statement::Kind::kFor: VisitFor(statement, symbols, place, inner); return;
      case Statement::Kind::kMacro: {
        statement.macro = Refer(*symbols.Find(statement.text), symbols.function());
        VisitMacro(statement, symbols, inner);
        return;
      }
      case Statement::Kind::kCallBlock:
        VisitMacro(statement, symbols, inner);
        Visit(*statement.value, symbols, place.is_soft);
        return;
      case Statement::Kind::kGeneration: VisitMacro(statement, symbols, inner); return;
      case Statement::Kind::kBreak:
      case Statement::Kind::kContinue:
        if (!place.in_loop) FailAt(statement.line, "'break' or 'continue' outside a loop");
        return;
      case Statement::Kind::kSetBlock:
      case Statement::Kind::kFilterBlock:
      case Statement::Kind::kWith:
      case Statement::Kind::kScope: VisitScope(statement, symbols, place, inner); return;
    }
  }

  void VisitScope(Statement& statement, const Symbols& symbols, const Place& place,
                  const Place& inner) {
    Symbols body = Inner(symbols, symbols.function(), place);
    for (const auto& target : statement.targets) Analyze(*target, Use::kParameter, body);
    Analyze(statement.body, body);
    const bool has_filters = statement.value != nullptr;
    if (has_filters) Analyze(*statement.value, Use::kLoad, body);
    for (const auto& expression : statement.expressions) Visit(*expression, symbols, place.is_soft);
    if (statement.target != nullptr) Visit(*statement.target, symbols, place.is_soft);
    for (const auto& target : statement.targets) Visit(*target, body, false);
    Visit(statement.body, body, inner);
    if (has_filters) Visit(*statement.value, body, false);
    statement.scope = Enter(body);
  }

  static ExpressionPointer CloneTarget(const Expression& target) {
    auto clone = std::make_unique<Expression>();
    clone->kind = target.kind;
    clone->line = target.line;
    clone->name = target.name;
    for (const auto& operand : target.operands) clone->operands.push_back(CloneTarget(*operand));
    return clone;
  }

  void VisitFor(Statement& statement, const Symbols& symbols, const Place& place, Place inner) {
    const auto fail_on_loop = [&](const std::string& name, Use use, int line) {
      if (use == Use::kStore && name == "loop")
        FailAt(line, "Can't assign to special loop variable in for-loop target");
      return true;
    };
    VisitNames(*statement.target, Use::kStore, fail_on_loop);
    VisitNames(statement.body, fail_on_loop);
    VisitNames(statement.else_body, fail_on_loop);

    FunctionInfo* function = symbols.function();
    if (statement.is_recursive) {
      function = NewFunction(function);
      statement.function = function;
    }
    Symbols body = Inner(symbols, function, place);
    Symbols otherwise = Inner(symbols, function, place, statement.is_recursive ? "e " : " ");
    statement.loop_slot = body.OnParameter("loop");
    Analyze(*statement.target, Use::kParameter, body);
    Analyze(statement.body, body);
    Analyze(statement.else_body, otherwise);

    Visit(*statement.value, symbols, place.is_soft);
    Visit(*statement.target, body, false);
    if (statement.test != nullptr) {
      // The condition has its own target variable, because it is evaluated ahead of the body.
      Symbols test = Inner(symbols, function, place, "t ");
      statement.test_target = CloneTarget(*statement.target);
      Analyze(*statement.test_target, Use::kParameter, test);
      Analyze(*statement.test, Use::kLoad, test);
      Visit(*statement.test_target, test, false);
      Visit(*statement.test, test, false);
      statement.test_scope = Enter(test);
    }
    inner.in_loop = true;
    Visit(statement.body, body, inner);
    statement.scope = Enter(body);
    inner.in_loop = place.in_loop && !statement.is_recursive;
    Visit(statement.else_body, otherwise, inner);
    statement.else_scope = Enter(otherwise);
  }

  // Visits a macro, or the body of a call block, which is a macro without a name.
  void VisitMacro(Statement& statement, const Symbols& symbols, Place inner) {
    FunctionInfo* function = NewFunction(symbols.function());
    statement.function = function;
    Place place = inner;
    --place.level;
    Symbols body = Inner(symbols, function, place);
    const auto analyze = [&] {
      for (const Parameter& parameter : statement.parameters) body.OnParameter(parameter.name);
      for (const Parameter& parameter : statement.parameters) {
        if (parameter.default_value != nullptr) Analyze(*parameter.default_value, Use::kLoad, body);
      }
      Analyze(statement.body, body);
    };
    const auto is_parameter = [&](const std::string& name) {
      return std::any_of(statement.parameters.begin(), statement.parameters.end(),
                         [&](const Parameter& parameter) { return parameter.name == name; });
    };
    std::set<std::string> wanted = {"caller", "kwargs", "varargs"};
    std::set<std::string> undeclared;
    VisitNames(statement.body, [&](const std::string& name, Use use, int) {
      if (!wanted.contains(name)) return true;
      if (use == Use::kLoad) {
        undeclared.insert(name);
      } else {
        wanted.erase(name);
      }
      return true;
    });
    if (undeclared.contains("caller")) {
      if (!is_parameter("caller")) {
        statement.caller_slot = body.OnParameter("caller");
      } else {
        for (const Parameter& parameter : statement.parameters) {
          if (parameter.name == "caller" && parameter.default_value == nullptr) {
            FailAt(statement.line,
                   "the special \"caller\" argument must be omitted or be given a default");
          }
        }
      }
    }
    if (undeclared.contains("kwargs") && !is_parameter("kwargs"))
      statement.kwargs_slot = body.OnParameter("kwargs");
    if (undeclared.contains("varargs") && !is_parameter("varargs"))
      statement.varargs_slot = body.OnParameter("varargs");
    analyze();
    for (Parameter& parameter : statement.parameters) {
      parameter.slot = body.Find(parameter.name)->slot;
      if (parameter.default_value != nullptr) Visit(*parameter.default_value, body, false);
    }
    inner.in_loop = false;
    Visit(statement.body, body, inner);
    statement.scope = Enter(body);
  }

  Program& program_;
  std::map<const FunctionInfo*, std::map<std::string, int>> slots_;
  std::set<std::string> variables_;
  int64_t work_ = 0;
};

}  // namespace

void Resolve(Program& program) {
  Resolver(program).Run();
}

}  // namespace sluice::jinja
