#include "chat/jinja/value.h"

#include <algorithm>

#include "chat/jinja/operators.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

// Limit of nesting. Python could not print or compare deeper values either.
constexpr int kMaxValueDepth = 300;
// Dictionaries of at most this many entries are searched linearly.
constexpr size_t kSmallDict = 8;
constexpr int64_t kMaxRange = 100'000;

}  // namespace

Heap::Heap(size_t bytes) : budget_(Budget::Current()), bytes_(bytes) {
  if (budget_ == nullptr) return;
  budget_->Spend(1);
  budget_->Take(bytes);
}
Heap::~Heap() {
  if (budget_ != nullptr) budget_->GiveBack(bytes_);
}
void Heap::Grow(size_t bytes) {
  if (budget_ != nullptr) budget_->Take(bytes);
  bytes_ += bytes;
}
void Heap::RaiseDepth(int child_depth) {
  if (child_depth >= kMaxValueDepth) {
    jinja::Fail(FailureKind::kLimit, "the chat template makes values nested deeper than " +
                                         std::to_string(kMaxValueDepth));
  }
  depth_ = std::max(depth_, child_depth + 1);
}

StringData::StringData(std::string value)
    : Heap(value.size() + 80), text(std::move(value)), num_characters(CountCodePoints(text)) {
  SpendCopy(text.size());
}

ListData::ListData(std::vector<Value> values)
    : Heap(values.capacity() * sizeof(Value) + 64), items(std::move(values)) {
  Spend(static_cast<int64_t>(items.size() / 8));
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  RaiseDepth(deepest);
}

namespace {

// Spreads hashes whose low bits are equal, such as hashes of integers.
size_t FirstSlot(size_t hash, size_t mask) {
  uint64_t mixed = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9;
  return static_cast<size_t>(mixed ^ mixed >> 32) & mask;
}

}  // namespace

// Returns the entry whose key has the hash `hash` and satisfies matches(key), or null.
template <typename Matches>
const DictData::Entry* DictData::FindEntry(size_t hash, const Matches& matches) const {
  if (slots_.empty()) {
    for (const Entry& entry : entries_) {
      if (matches(entry.first)) return &entry;
    }
    return nullptr;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = FirstSlot(hash, mask); slots_[slot] != 0; slot = (slot + 1) & mask) {
    Spend(1);
    const size_t index = slots_[slot] - 1;
    if (hashes_[index] == hash && matches(entries_[index].first)) return &entries_[index];
  }
  return nullptr;
}

void DictData::AddSlot(size_t index) {
  const size_t mask = slots_.size() - 1;
  size_t slot = FirstSlot(hashes_[index], mask);
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) Spend(1);
  slots_[slot] = static_cast<uint32_t>(index + 1);
}

void DictData::GrowIndex() {
  Spend(static_cast<int64_t>(entries_.size()));
  for (size_t i = hashes_.size(); i < entries_.size(); ++i)
    hashes_.push_back(Hash(entries_[i].first));
  slots_.assign(slots_.empty() ? 4 * kSmallDict : 2 * slots_.size(), 0);
  for (size_t i = 0; i < entries_.size(); ++i) AddSlot(i);
}

const Value* DictData::Find(const Value& key) const {
  const Entry* entry =
      FindEntry(Hash(key), [&key](const Value& other) { return Equal(other, key); });
  return entry == nullptr ? nullptr : &entry->second;
}

const Value* DictData::Find(std::string_view key) const {
  SpendCopy(key.size());
  const Entry* entry = FindEntry(HashText(key), [key](const Value& other) {
    return other.is_string() && other.text() == key;
  });
  return entry == nullptr ? nullptr : &entry->second;
}

void DictData::Set(Value key, Value value) {
  const size_t hash = Hash(key);
  const Entry* found = FindEntry(hash, [&key](const Value& other) { return Equal(other, key); });
  RaiseDepth(std::max(key.depth(), value.depth()));
  if (found != nullptr) {
    entries_[static_cast<size_t>(found - entries_.data())].second = std::move(value);
    return;
  }
  // Counts the size of an entry, its hash and its slots.
  Grow(sizeof(Entry) + 32);
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() <= kSmallDict) return;
  if (2 * entries_.size() > slots_.size()) {
    GrowIndex();
  } else {
    hashes_.push_back(hash);
    AddSlot(entries_.size() - 1);
  }
}

Value Value::Integer(BigInteger value) {
  if (const auto small = value.ToInt64()) return Integer(*small);
  return Value(Kind::kBigInteger, std::make_shared<BigData>(std::move(value)));
}

Value Value::Undefined(std::string message) {
  return Value(Kind::kUndefined, std::make_shared<UndefinedData>(std::move(message)));
}

Value Value::UndefinedName(std::string_view name) {
  std::string message;
  AppendRepr(message, name);
  return Undefined(message + " is undefined");
}

Value Value::UnsafeAttribute(std::string_view name, const Value& object) {
  std::string message = "access to attribute ";
  AppendRepr(message, name);
  auto data = std::make_shared<UndefinedData>(message + " of '" + object.TypeName() +
                                              "' object is unsafe.");
  data->is_security = true;
  return Value(Kind::kUndefined, std::move(data));
}

void Value::FailUndefined() const {
  jinja::Fail(undefined().is_security ? FailureKind::kSecurity : FailureKind::kUndefined,
              undefined().message);
}

Value Value::FromJson(const json::Value& value) {
  Spend(1);
  switch (value.type()) {
    case json::Type::kNull: return None();
    case json::Type::kBool: return Bool(value.as_bool());
    case json::Type::kInteger: return Integer(value.as_integer());
    case json::Type::kBigInteger:
      if (value.as_string().size() > 4300)
        FailValue("an integer of the chat template's variables has too many digits");
      return Integer(BigInteger::FromDecimal(value.as_string()));
    case json::Type::kDouble: return Float(value.as_double());
    case json::Type::kString: return String(value.as_string());
    case json::Type::kArray: {
      std::vector<Value> items;
      items.reserve(value.as_array().size());
      for (const json::Value& item : value.as_array()) items.push_back(FromJson(item));
      return List(std::move(items));
    }
    case json::Type::kObject: {
      auto dict = std::make_shared<DictData>();
      for (const auto& [key, member] : value.as_object()) dict->Set(String(key), FromJson(member));
      return Dict(std::move(dict));
    }
  }
  return None();
}

std::string Value::TypeName() const {
  switch (kind_) {
    case Kind::kMissing:
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInteger:
    case Kind::kBigInteger: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return is_markup_ ? "Markup" : "str";
    case Kind::kBytes: return "bytes";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kObject: return object().TypeName();
  }
  return "object";
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): callable objects take the arguments.
Value Object::Call(Interpreter&, Arguments) {
  FailType("'" + TypeName() + "' object is not callable");
}

namespace {

class FunctionIterator final : public Iterator {
 public:
  FunctionIterator(Value source, std::function<bool(Value&)> next)
      : source_(std::move(source)), next_(std::move(next)) {}

 private:
  bool Advance(Value& value) override { return next_(value); }

  Value source_;
  std::function<bool(Value&)> next_;
};

// Iterates by index over an object that has a length and At.
template <typename T>
class IndexIterator final : public Iterator {
 public:
  explicit IndexIterator(T source, size_t size) : source_(std::move(source)), size_(size) {}

 private:
  bool Advance(Value& value) override {
    if (index_ >= size_) return false;
    value = source_.At(index_++);
    return true;
  }

  T source_;
  size_t size_;
  size_t index_ = 0;
};

}  // namespace

Value MakeGenerator(const Value& source, std::function<bool(Value&)> next, std::string type_name) {
  return Value::FromObject(
      std::make_shared<Generator>(std::make_shared<FunctionIterator>(source, std::move(next)),
                                  std::move(type_name), source.depth()));
}

Range::Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step) {
  const bool forward = step > 0;
  const auto distance =
      forward ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = forward ? step : -static_cast<__int128>(step);
  const __int128 size = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (size > kMaxRange) {
    jinja::Fail(FailureKind::kOverflow,
                "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  size_ = static_cast<size_t>(size);
}

std::string Range::Repr() const {
  std::string text = "range(" + std::to_string(start_) + ", " + std::to_string(stop_);
  if (step_ != 1) text += ", " + std::to_string(step_);
  return text + ")";
}

namespace {
struct RangeSource {
  int64_t start, step;
  Value At(size_t index) const {
    return Value::Integer(start + static_cast<int64_t>(index) * step);
  }
};
struct ViewSource {
  Value dict;
  DictView::Part part;
  Value At(size_t index) const {
    const DictData::Entry& entry = dict.dict().entries()[index];
    switch (part) {
      case DictView::Part::kKeys: return entry.first;
      case DictView::Part::kValues: return entry.second;
      case DictView::Part::kItems: break;
    }
    return Value::Tuple({entry.first, entry.second});
  }
};
}  // namespace

IteratorPointer Range::Iterate() {
  return std::make_shared<IndexIterator<RangeSource>>(RangeSource{start_, step_}, size_);
}

std::optional<Value> Range::Attribute(const std::shared_ptr<Heap>&, std::string_view name) {
  if (name == "start") return Value::Integer(start_);
  if (name == "stop") return Value::Integer(stop_);
  if (name == "step") return Value::Integer(step_);
  return std::nullopt;
}

std::string DictView::TypeName() const {
  switch (part_) {
    case Part::kKeys: return "dict_keys";
    case Part::kValues: return "dict_values";
    case Part::kItems: break;
  }
  return "dict_items";
}

Value DictView::At(size_t index) const {
  return ViewSource{dict_, part_}.At(index);
}

std::string DictView::Repr() const {
  std::string text = TypeName() + "([";
  for (size_t i = 0; i < dict_.dict().size(); ++i) {
    if (i > 0) text += ", ";
    jinja::AppendRepr(text, At(i));
  }
  return text + "])";
}

IteratorPointer DictView::Iterate() {
  return std::make_shared<IndexIterator<ViewSource>>(ViewSource{dict_, part_}, dict_.dict().size());
}

std::string Namespace::Repr() const {
  std::string text = "<Namespace {";
  for (const auto& [name, value] : attributes_) {
    if (text.back() != '{') text += ", ";
    jinja::AppendRepr(text, std::string_view(name));
    text += ": ";
    jinja::AppendRepr(text, value);
  }
  return text + "}>";
}

std::optional<Value> Namespace::Attribute(const std::shared_ptr<Heap>&, std::string_view name) {
  Spend(static_cast<int64_t>(attributes_.size() / 8));
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::Set(std::string_view name, Value value) {
  if (!name.empty() && name[0] == '_') {
    std::string quoted;
    jinja::AppendRepr(quoted, name);
    jinja::Fail(
        FailureKind::kSecurity,
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
            quoted + ". Please rename the attribute.");
  }
  Spend(static_cast<int64_t>(attributes_.size() / 8));
  for (auto& [key, old] : attributes_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  Grow(sizeof(Value) + sizeof(std::string) + name.size());
  attributes_.emplace_back(name, std::move(value));
}

}  // namespace sluice::jinja
