// Access to parts of values: length, iteration, attributes, items and slices.
#include <algorithm>

#include "chat/jinja/methods.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

class CharacterIterator final : public Iterator {
 public:
  explicit CharacterIterator(Value text) : text_(std::move(text)) {}

 private:
  bool Advance(Value& value) override {
    const std::string& text = text_.text();
    if (position_ >= text.size()) return false;
    const size_t start = position_;
    NextCodePoint(text, position_);
    value = Value::String(text.substr(start, position_ - start));
    return true;
  }

  Value text_;
  size_t position_ = 0;
};

class ItemIterator final : public Iterator {
 public:
  explicit ItemIterator(Value sequence) : sequence_(std::move(sequence)) {}

 private:
  bool Advance(Value& value) override {
    if (index_ >= sequence_.items().size()) return false;
    value = sequence_.items()[index_++];
    return true;
  }

  Value sequence_;
  size_t index_ = 0;
};

class KeyIterator final : public Iterator {
 public:
  explicit KeyIterator(Value dict) : dict_(std::move(dict)) {}

 private:
  bool Advance(Value& value) override {
    if (index_ >= dict_.dict().size()) return false;
    value = dict_.dict().entries()[index_++].first;
    return true;
  }

  Value dict_;
  size_t index_ = 0;
};

class ByteIterator final : public Iterator {
 public:
  explicit ByteIterator(Value bytes) : bytes_(std::move(bytes)) {}

 private:
  bool Advance(Value& value) override {
    if (index_ >= bytes_.bytes().size()) return false;
    value = Value::Integer(int64_t{static_cast<unsigned char>(bytes_.bytes()[index_++])});
    return true;
  }

  Value bytes_;
  size_t index_ = 0;
};

class EmptyIterator final : public Iterator {
  bool Advance(Value&) override { return false; }
};

bool IsSlotName(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

// Returns object[key], or nullopt where Python raises a TypeError or LookupError.
std::optional<Value> FindItem(const Value& object, const Value& key) {
  const auto index_in = [&](size_t size) -> std::optional<size_t> {
    if (!key.fits_int64()) return std::nullopt;
    int64_t index = key.as_int64();
    if (index < 0) index += static_cast<int64_t>(size);
    if (index < 0 || index >= static_cast<int64_t>(size)) return std::nullopt;
    return static_cast<size_t>(index);
  };
  switch (object.kind()) {
    case Kind::kUndefined: object.FailUndefined();
    case Kind::kDict: {
      if (key.is_string()) {
        const Value* found = object.dict().Find(std::string_view(key.text()));
        return found == nullptr ? std::nullopt : std::optional(*found);
      }
      const Value* found = nullptr;
      try {
        found = object.dict().Find(key);
      } catch (const Failure& failure) {
        if (failure.kind != FailureKind::kType) throw;
      }
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    case Kind::kList:
    case Kind::kTuple:
      if (const auto index = index_in(object.items().size())) return object.items()[*index];
      return std::nullopt;
    case Kind::kString: {
      const StringData& string = object.string();
      const auto index = index_in(string.num_characters);
      if (!index) return std::nullopt;
      if (string.is_ascii()) return Value::StringLike(std::string(1, string.text[*index]), object);
      size_t position = ByteOffset(string.text, *index);
      SpendSearch(position);
      const size_t start = position;
      NextCodePoint(string.text, position);
      return Value::StringLike(string.text.substr(start, position - start), object);
    }
    case Kind::kBytes:
      if (const auto index = index_in(object.bytes().size())) {
        return Value::Integer(int64_t{static_cast<unsigned char>(object.bytes()[*index])});
      }
      return std::nullopt;
    case Kind::kObject:
      if (const auto* range = object.As<Range>()) {
        if (const auto index = index_in(*object.object().Length())) return range->At(*index);
      }
      return std::nullopt;
    default: return std::nullopt;
  }
}

Value NoAttribute(const Value& object, std::string_view name) {
  std::string message = object.is_none() ? "'None'" : "'" + object.TypeName() + " object'";
  message += " has no attribute ";
  AppendRepr(message, name);
  return Value::Undefined(std::move(message));
}

}  // namespace

std::optional<Value> FindAttribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    if (IsSlotName(name)) return std::nullopt;
    object.FailUndefined();
  }
  if (object.kind() == Kind::kObject) {
    if (auto value = object.object().Attribute(object.heap(), name)) return value;
    if (object.As<Namespace>() != nullptr) return std::nullopt;
  } else if (auto value = TypeAttribute(object, name)) {
    return value;
  }
  if (IsSlotName(name)) return Value::UnsafeAttribute(name, object);
  return std::nullopt;
}

IteratorPointer TryIterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: return std::make_shared<EmptyIterator>();
    case Kind::kString: return std::make_shared<CharacterIterator>(value);
    case Kind::kBytes: return std::make_shared<ByteIterator>(value);
    case Kind::kList:
    case Kind::kTuple: return std::make_shared<ItemIterator>(value);
    case Kind::kDict: return std::make_shared<KeyIterator>(value);
    case Kind::kObject: return value.object().Iterate();
    default: return nullptr;
  }
}

IteratorPointer Iterate(const Value& value) {
  IteratorPointer iterator = TryIterate(value);
  if (iterator == nullptr) FailType("'" + value.TypeName() + "' object is not iterable");
  return iterator;
}

std::vector<Value> ToVector(const Value& value) {
  if (value.is_list() || value.is_tuple()) {
    Spend(static_cast<int64_t>(value.items().size() / 4));
    RequireMemory(value.items().size() * sizeof(Value));
    return value.items();
  }
  return Drain(*Iterate(value));
}

std::vector<Value> Drain(Iterator& iterator) {
  std::vector<Value> items;
  Value item;
  while (iterator.Next(item)) {
    if (items.size() == items.capacity()) RequireMemory(items.size() * 2 * sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

Value GetAttribute(const Value& object, std::string_view name) {
  if (auto value = FindAttribute(object, name)) return *std::move(value);
  if (object.is_dict()) {
    if (const Value* found = object.dict().Find(name)) return *found;
  }
  if (object.is_undefined()) object.FailUndefined();
  return NoAttribute(object, name);
}

Value GetItem(const Value& object, const Value& key) {
  if (auto value = FindItem(object, key)) return *std::move(value);
  if (key.is_string()) {
    if (auto value = FindAttribute(object, key.text())) return *std::move(value);
    return NoAttribute(object, key.text());
  }
  return Value::Undefined((object.is_none() ? "None" : object.TypeName() + " object") +
                          " has no element " + Repr(key));
}

Value GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) object.FailUndefined();
  size_t length = 0;
  switch (object.kind()) {
    case Kind::kString: length = object.string().num_characters; break;
    case Kind::kBytes: length = object.bytes().size(); break;
    case Kind::kList:
    case Kind::kTuple: length = object.items().size(); break;
    case Kind::kDict: FailType("unhashable type: 'slice'");
    default:
      if (object.As<Range>() == nullptr)
        FailType("'" + object.TypeName() + "' object is not subscriptable");
      length = *object.object().Length();
  }
  constexpr const char* kWhat = "slice indices must be integers or None, not a value";
  const auto size = static_cast<int64_t>(length);
  const int64_t stride = step.is_none() ? 1 : ToIndex(step, kWhat);
  if (stride == 0) FailValue("slice step cannot be zero");
  const auto bound = [&](const Value& value, int64_t missing) {
    if (value.is_none()) return missing;
    int64_t index = ToIndex(value, kWhat);
    if (index < 0) index = index < -size ? -1 : index + size;
    if (stride > 0) return std::clamp<int64_t>(index, 0, size);
    return std::clamp<int64_t>(index, -1, size - 1);
  };
  const int64_t first = bound(start, stride > 0 ? 0 : size - 1);
  const int64_t end = bound(stop, stride > 0 ? size : -1);

  if (object.is_string()) {
    const StringData& string = object.string();
    if (stride == 1) {
      if (first >= end) return Value::StringLike("", object);
      if (string.is_ascii()) {
        return Value::StringLike(
            string.text.substr(static_cast<size_t>(first), static_cast<size_t>(end - first)),
            object);
      }
      const size_t from = ByteOffset(string.text, static_cast<size_t>(first));
      const std::string_view rest = std::string_view(string.text).substr(from);
      const size_t length = ByteOffset(rest, static_cast<size_t>(end - first));
      SpendSearch(from + length);
      return Value::StringLike(std::string(rest.substr(0, length)), object);
    }
    Spend(size);
    RequireMemory(length * sizeof(char32_t));
    const std::u32string characters = Decode(string.text);
    std::string text;
    for (int64_t i = first; stride > 0 ? i < end : i > end;) {
      AppendUtf8(text, characters[static_cast<size_t>(i)]);
      if (__builtin_add_overflow(i, stride, &i)) break;
    }
    return Value::StringLike(std::move(text), object);
  }

  Spend(std::abs(end - first) / std::max<int64_t>(std::abs(std::max(stride, -INT64_MAX)), 1));
  std::vector<size_t> indices;
  for (int64_t i = first; stride > 0 ? i < end : i > end;) {
    indices.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (object.kind() == Kind::kBytes) {
    std::string bytes;
    for (const size_t i : indices) bytes.push_back(object.bytes()[i]);
    return Value::Bytes(std::move(bytes));
  }
  RequireMemory(indices.size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(indices.size());
  if (const auto* range = object.As<Range>()) {
    for (const size_t i : indices) items.push_back(range->At(i));
    return Value::List(std::move(items));
  }
  for (const size_t i : indices) items.push_back(object.items()[i]);
  return object.is_list() ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

}  // namespace sluice::jinja
