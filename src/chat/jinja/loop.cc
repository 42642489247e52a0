#include "chat/jinja/loop.h"

#include "chat/jinja/arguments.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

Loop::Loop(Value iterable, IteratorPointer iterator, bool has_length, int depth,
           const Statement* recursive, Activation* outer)
    : Object(320),
      iterable_(std::move(iterable)),
      iterator_(std::move(iterator)),
      has_length_(has_length),
      depth_(depth),
      recursive_(recursive),
      outer_(outer) {
  RaiseDepth(iterable_.depth());
}

bool Loop::Peek() {
  if (after_.is_missing() && iterator_ != nullptr && !iterator_->Next(after_)) after_ = Value();
  return !after_.is_missing();
}

bool Loop::Advance(Value& item) {
  if (!after_.is_missing()) {
    item = std::exchange(after_, Value());
  } else if (iterator_ == nullptr || !iterator_->Next(item)) {
    return false;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return true;
}

void Loop::Close() {
  iterator_ = nullptr;
  after_ = Value();
}

size_t Loop::FindLength() {
  if (length_) return *length_;
  if (has_length_) {
    length_ = jinja::Length(iterable_);
  } else {
    std::vector<Value> rest;
    if (iterator_ != nullptr) rest = Drain(*iterator_);
    length_ = rest.size() + static_cast<size_t>(index0_ + 1) + (after_.is_missing() ? 0 : 1);
    iterator_ = jinja::Iterate(Value::List(std::move(rest)));
  }
  return *length_;
}

std::string Loop::Repr() const {
  auto* self = const_cast<Loop*>(this);
  return "<LoopContext " + std::to_string(index0_ + 1) + "/" + std::to_string(self->FindLength()) +
         ">";
}

IteratorPointer Loop::Iterate() {
  // In Python, iterating over `loop` yields pairs of item and loop, which no template uses.
  FailType("the loop itself cannot be iterated over in chat templates");
}

std::optional<Value> Loop::Attribute(const std::shared_ptr<Heap>& self, std::string_view name) {
  const auto integer = [](int64_t value) { return Value::Integer(value); };
  const auto length = [this] { return static_cast<int64_t>(FindLength()); };
  if (name == "index0") return integer(index0_);
  if (name == "index") return integer(index0_ + 1);
  if (name == "first") return Value::Bool(index0_ == 0);
  if (name == "last") return Value::Bool(!Peek());
  if (name == "length") return integer(length());
  if (name == "revindex0") return integer(length() - index0_ - 1);
  if (name == "revindex") return integer(length() - index0_);
  if (name == "depth") return integer(depth_ + 1);
  if (name == "depth0") return integer(depth_);
  if (name == "previtem")
    return index0_ == 0 ? Value::Undefined("there is no previous item") : before_;
  if (name == "nextitem") return Peek() ? after_ : Value::Undefined("there is no next item");
  auto loop = std::static_pointer_cast<Loop>(self);
  if (name == "cycle") {
    return Value::FromObject(std::make_shared<Function>(
        "cycle",
        [loop](Interpreter&, Arguments& arguments) {
          if (!arguments.keyword.empty()) FailType("cycle() takes no keyword arguments");
          if (arguments.positional.empty()) FailType("no items for cycling given");
          return arguments
              .positional[static_cast<size_t>(loop->index0_) % arguments.positional.size()];
        },
        "method", depth()));
  }
  if (name == "changed") {
    return Value::FromObject(std::make_shared<Function>(
        "changed",
        [loop](Interpreter& interpreter, Arguments& arguments) {
          if (!arguments.keyword.empty()) FailType("changed() takes no keyword arguments");
          if (loop->last_changed_.is_missing()) interpreter.loops_.push_back(loop);
          Value values = Value::Tuple(std::move(arguments.positional));
          if (!loop->last_changed_.is_missing() && Equal(loop->last_changed_, values))
            return Value::Bool(false);
          loop->last_changed_ = std::move(values);
          return Value::Bool(true);
        },
        "method", depth()));
  }
  return std::nullopt;
}

Value Loop::Call(Interpreter& interpreter, Arguments arguments) {
  const Bound bound("loop", arguments, {"iterable"}, 1);
  if (recursive_ == nullptr)
    FailType("The loop must have the 'recursive' marker to be called recursively.");
  return interpreter.RunRecursiveLoop(*recursive_, bound[0], depth_ + 1, outer_);
}

std::string Macro::Repr() const {
  if (statement_.kind != Statement::Kind::kMacro) return "<Macro anonymous>";
  std::string name;
  AppendRepr(name, std::string_view(statement_.text));
  return "<Macro " + name + ">";
}

std::optional<Value> Macro::Attribute(const std::shared_ptr<Heap>&, std::string_view name) {
  if (name == "name") {
    return statement_.kind == Statement::Kind::kMacro ? Value::String(statement_.text)
                                                      : Value::None();
  }
  if (name == "arguments") {
    std::vector<Value> names;
    for (const Parameter& parameter : statement_.parameters)
      names.push_back(Value::String(parameter.name));
    return Value::Tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value::Bool(statement_.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::Bool(statement_.varargs_slot >= 0);
  if (name == "caller") return Value::Bool(statement_.caller_slot >= 0);
  return std::nullopt;
}

Value Macro::Call(Interpreter& interpreter, Arguments arguments) {
  return interpreter.CallMacro(statement_, outer_, arguments);
}

}  // namespace sluice::jinja
