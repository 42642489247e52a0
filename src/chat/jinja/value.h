// The values of the template language: Python's values, as far as the sandbox exposes them.
//
// Ownership: copies of a value share its heap object. Lists, tuples and dictionaries never change
// once a template can see them, so only a Namespace can create a cycle; the interpreter empties
// namespaces at the end of a render. Thread safety: a value belongs to one render, except the
// constants of a compiled template, which never change.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/jinja/big_integer.h"
#include "chat/jinja/budget.h"

namespace sluice::jinja {

class Interpreter;
class Value;
struct Arguments;

enum class Kind : uint8_t {
  kMissing,  // A variable that was never set; reading it gives an undefined value. Templates never
             // see kMissing.
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kBigInteger,  // An integer outside int64.
  kFloat,
  kString,
  kBytes,
  kList,
  kTuple,
  kDict,
  kObject,  // All other types: see Object.
};

// Heap object of a value. Its size counts against the budget of the render that creates it.
class Heap {
 public:
  explicit Heap(size_t bytes);
  virtual ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Nesting depth of containers in this value. The depth is limited, so that recursive functions
  // need limited stack.
  int depth() const { return depth_; }
  // Makes the depth more than `child_depth`. Fails if the value becomes too deep. REQUIRES: no
  // template has seen the value.
  void RaiseDepth(int child_depth);
  // Counts `bytes` more against the budget.
  void Grow(size_t bytes);

 private:
  Budget* budget_;
  size_t bytes_;
  int depth_ = 0;
};

struct StringData final : Heap {
  explicit StringData(std::string value);
  std::string text;       // UTF-8
  size_t num_characters;  // Number of code points.
  bool is_ascii() const { return num_characters == text.size(); }
};
struct BytesData final : Heap {
  explicit BytesData(std::string value) : Heap(value.size() + 64), bytes(std::move(value)) {
    SpendCopy(bytes.size());
  }
  std::string bytes;
};
struct BigData final : Heap {
  explicit BigData(BigInteger v) : Heap(64 + v.num_bytes()), value(std::move(v)) {}
  BigInteger value;
};
struct ListData final : Heap {
  explicit ListData(std::vector<Value> values);
  std::vector<Value> items;
  // Created by `groupby`: the two elements also have the names `grouper` and `list`.
  bool is_group = false;
};
class DictData final : public Heap {
 public:
  using Entry = std::pair<Value, Value>;
  DictData();
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const;
  // Returns the value of an equal key, or null. Fails (TypeError) if the key cannot be hashed. Each
  // key with a colliding hash costs a step.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // REQUIRES: no template has seen the dictionary.
  void Set(Value key, Value value);

 private:
  template <typename Matches>
  const Entry* FindEntry(size_t hash, const Matches& matches) const;
  void AddSlot(size_t index);
  void GrowIndex();

  std::vector<Entry> entries_;
  // Hash table with open addressing; its size is a power of two. A slot contains 1 + the index of
  // an entry, or 0 if free. This table and `hashes_` are empty while there are few entries, which
  // are searched linearly.
  std::vector<uint32_t> slots_;
  std::vector<size_t> hashes_;  // hash of each entry
};
struct UndefinedData final : Heap {
  explicit UndefinedData(std::string why) : Heap(96 + why.size()), message(std::move(why)) {}
  // The reason why the value is undefined: "'x' is undefined", or another message.
  std::string message;
  bool is_security = false;  // Whether using the value is a SecurityError.
};

// A one-pass source of values. Each value costs a step.
class Iterator {
 public:
  virtual ~Iterator() = default;
  // Returns false at the end.
  bool Next(Value& value) {
    Spend(1);
    return Advance(value);
  }

 private:
  virtual bool Advance(Value& value) = 0;
};
using IteratorPointer = std::shared_ptr<Iterator>;

class Value {
 public:
  Value() = default;  // A kMissing value.
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value) {
    Value result(Kind::kBool);
    result.integer_ = value;
    return result;
  }
  static Value Integer(int64_t value) {
    Value result(Kind::kInteger);
    result.integer_ = value;
    return result;
  }
  static Value Integer(BigInteger value);  // Becomes kInteger if it fits into int64.
  static Value Float(double value) {
    Value result(Kind::kFloat);
    result.float_ = value;
    return result;
  }
  static Value String(std::string text) {
    return Value(Kind::kString, std::make_shared<StringData>(std::move(text)));
  }
  // A string of type Markup, which concatenation does not escape.
  static Value Markup(std::string text) {
    Value result = String(std::move(text));
    result.is_markup_ = true;
    return result;
  }
  // Returns a string that is Markup if `like` is Markup.
  static Value StringLike(std::string text, const Value& like) {
    Value result = String(std::move(text));
    result.is_markup_ = like.is_markup_;
    return result;
  }
  static Value Bytes(std::string bytes) {
    return Value(Kind::kBytes, std::make_shared<BytesData>(std::move(bytes)));
  }
  static Value List(std::vector<Value> items) {
    return Value(Kind::kList, std::make_shared<ListData>(std::move(items)));
  }
  static Value Tuple(std::vector<Value> items) {
    return Value(Kind::kTuple, std::make_shared<ListData>(std::move(items)));
  }
  static Value Dict(std::shared_ptr<DictData> dict) { return Value(Kind::kDict, std::move(dict)); }
  template <typename T>
  static Value FromObject(std::shared_ptr<T> object) {
    return Value(Kind::kObject, std::move(object));
  }
  static Value Undefined(std::string message);
  static Value UndefinedName(std::string_view name);
  static Value UnsafeAttribute(std::string_view name, const Value& object);
  static Value FromJson(const json::Value& value);

  Kind kind() const { return kind_; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_markup() const { return is_markup_; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_tuple() const { return kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_integral() const {
    return kind_ == Kind::kInteger || kind_ == Kind::kBool || kind_ == Kind::kBigInteger;
  }
  bool is_number() const { return is_integral() || is_float(); }
  bool fits_int64() const { return kind_ == Kind::kInteger || kind_ == Kind::kBool; }

  // REQUIRES: the value has the kind that the called function returns.
  bool as_bool() const { return integer_ != 0; }
  int64_t as_int64() const { return integer_; }  // Also for kBool.
  double as_float() const { return float_; }
  const std::string& text() const { return string().text; }
  const StringData& string() const { return static_cast<const StringData&>(*heap_); }
  const std::string& bytes() const { return static_cast<const BytesData&>(*heap_).bytes; }
  const BigInteger& big() const { return static_cast<const BigData&>(*heap_).value; }
  const std::vector<Value>& items() const {
    return static_cast<const ListData&>(*heap_).items;
  }  // Also for kTuple.
  const DictData& dict() const { return static_cast<const DictData&>(*heap_); }
  const UndefinedData& undefined() const { return static_cast<const UndefinedData&>(*heap_); }
  class Object& object() const;
  // Returns the object as a T, or null if the value is not a T.
  template <typename T>
  T* As() const {
    return kind_ == Kind::kObject ? dynamic_cast<T*>(heap_.get()) : nullptr;
  }

  const std::shared_ptr<Heap>& heap() const { return heap_; }
  int depth() const { return heap_ == nullptr ? 0 : heap_->depth(); }
  // Python's name of the value's type, as in "'int' object is not iterable".
  std::string TypeName() const;
  // Throws the failure for using this undefined value. REQUIRES: the value is undefined.
  [[noreturn]] void FailUndefined() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  template <typename T>
  Value(Kind kind, std::shared_ptr<T> heap) : kind_(kind), heap_(std::move(heap)) {}

  Kind kind_ = Kind::kMissing;
  bool is_markup_ = false;
  union {
    int64_t integer_ = 0;
    double float_;
  };
  std::shared_ptr<Heap> heap_;
};

inline DictData::DictData() : Heap(96) {}
inline size_t DictData::size() const {
  return entries_.size();
}

// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

// Base of the values of all other types: ranges, loops, macros, methods, generators, ...
class Object : public Heap {
 public:
  explicit Object(size_t bytes = 128) : Heap(bytes) {}
  virtual std::string TypeName() const = 0;
  virtual std::string Repr() const { return "<" + TypeName() + " object>"; }
  virtual bool Truth() const { return true; }
  virtual std::optional<size_t> Length() {
    return std::nullopt;
  }  // Returns nullopt if the object
     // has no len().
  virtual IteratorPointer Iterate() {
    return nullptr;
  }  // Returns null if the object is
     // not iterable.
  virtual bool HasItems() const {
    return false;
  }  // Whether the object supports
     // x[i].
  virtual std::optional<Value> Attribute(const std::shared_ptr<Heap>& /*self*/,
                                         std::string_view /*name*/) {
    return std::nullopt;
  }
  virtual bool IsCallable() const { return false; }
  virtual Value Call(Interpreter& interpreter, Arguments arguments);
};
inline Object& Value::object() const {
  return static_cast<class Object&>(*heap_);
}

// The result of `map` and similar filters. Its values are computed once, on request.
class Generator final : public Object {
 public:
  explicit Generator(IteratorPointer iterator, std::string type_name = "generator",
                     int source_depth = 0)
      : iterator_(std::move(iterator)), type_name_(std::move(type_name)) {
    RaiseDepth(source_depth);
  }
  std::string TypeName() const override { return type_name_; }
  IteratorPointer Iterate() override { return iterator_; }

 private:
  IteratorPointer iterator_;
  std::string type_name_;
};
// Makes a generator that takes its values from `next`, which must keep alive what it needs.
// `source`: the value that `next` reads from.
Value MakeGenerator(const Value& source, std::function<bool(Value&)> next,
                    std::string type_name = "generator");

// The object that range(start, stop, step) creates, with at most 100,000 elements.
class Range final : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step);
  std::string TypeName() const override { return "range"; }
  std::string Repr() const override;
  bool Truth() const override { return size_ > 0; }
  std::optional<size_t> Length() override { return size_; }
  IteratorPointer Iterate() override;
  bool HasItems() const override { return true; }
  std::optional<Value> Attribute(const std::shared_ptr<Heap>& self, std::string_view name) override;
  Value At(size_t index) const {
    return Value::Integer(start_ + static_cast<int64_t>(index) * step_);
  }

 private:
  int64_t start_, stop_, step_;
  size_t size_;
};

// The object that dict.keys(), dict.values() or dict.items() returns: a view of the dictionary.
class DictView final : public Object {
 public:
  enum class Part { kKeys, kValues, kItems };
  DictView(Value dict, Part part) : dict_(std::move(dict)), part_(part) {
    RaiseDepth(dict_.depth());
  }
  std::string TypeName() const override;
  std::string Repr() const override;
  bool Truth() const override { return dict_.dict().size() > 0; }
  std::optional<size_t> Length() override { return dict_.dict().size(); }
  IteratorPointer Iterate() override;
  Value At(size_t index) const;
  const Value& dict() const { return dict_; }
  Part part() const { return part_; }

 private:
  Value dict_;
  Part part_;
};

// namespace(...): the only value that a template can change.
class Namespace final : public Object {
 public:
  std::string TypeName() const override { return "Namespace"; }
  std::string Repr() const override;
  std::optional<Value> Attribute(const std::shared_ptr<Heap>& self, std::string_view name) override;
  // Fails (SecurityError) for names that begin with an underscore.
  void Set(std::string_view name, Value value);
  void Clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

// A built-in function: a method bound to its value, or a global function.
class Function final : public Object {
 public:
  using Body = std::function<Value(Interpreter&, Arguments&)>;
  Function(std::string name, Body body, std::string type_name = "builtin_function_or_method",
           int self_depth = 0)
      : name_(std::move(name)), body_(std::move(body)), type_name_(std::move(type_name)) {
    RaiseDepth(self_depth);
  }
  std::string TypeName() const override { return type_name_; }
  std::string Repr() const override { return "<built-in function " + name_ + ">"; }
  bool IsCallable() const override { return true; }
  Value Call(Interpreter& interpreter, Arguments arguments) override {
    return body_(interpreter, arguments);
  }

 private:
  std::string name_;
  Body body_;
  std::string type_name_;
};

}  // namespace sluice::jinja
