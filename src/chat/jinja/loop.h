// Objects that statements create: `loop` and macros.
#pragma once

#include "chat/jinja/interpreter.h"

namespace sluice::jinja {

// The variable `loop` inside a for loop.
class Loop final : public Object {
 public:
  Loop(Value iterable, IteratorPointer iterator, bool has_length, int depth,
       const Statement* recursive, Activation* outer);
  std::string TypeName() const override { return "LoopContext"; }
  std::string Repr() const override;
  std::optional<size_t> Length() override { return FindLength(); }
  IteratorPointer Iterate() override;
  std::optional<Value> Attribute(const std::shared_ptr<Heap>& self, std::string_view name) override;
  bool IsCallable() const override { return true; }
  Value Call(Interpreter& interpreter, Arguments arguments) override;

  // Moves to the next item. Returns false at the end.
  bool Advance(Value& item);
  // Ends the loop and drops the iterator, which must not be used afterwards.
  void Close();
  void ForgetChanges() { last_changed_ = Value(); }

 private:
  size_t FindLength();
  bool Peek();

  Value iterable_;
  IteratorPointer iterator_;
  bool has_length_;
  std::optional<size_t> length_;
  int64_t index0_ = -1;
  Value before_, current_, after_;
  Value last_changed_;
  int depth_;  // Nesting depth of a recursive loop, counted from 0.
  const Statement* recursive_;
  Activation* outer_;
};

class Macro final : public Object {
 public:
  Macro(const Statement& statement, Activation* outer) : statement_(statement), outer_(outer) {}
  std::string TypeName() const override { return "Macro"; }
  std::string Repr() const override;
  bool IsCallable() const override { return true; }
  std::optional<Value> Attribute(const std::shared_ptr<Heap>& self, std::string_view name) override;
  Value Call(Interpreter& interpreter, Arguments arguments) override;

 private:
  const Statement& statement_;
  Activation* outer_;  // The interpreter keeps it alive until the render ends.
};

}  // namespace sluice::jinja
