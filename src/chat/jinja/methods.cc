// Attributes and methods of dict, list, tuple and bytes.
#include "chat/jinja/methods.h"

#include <algorithm>

#include "base/utf8.h"
#include "chat/jinja/arguments.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

Value BindTo(const Value& self, std::string_view name,
             Value (*method)(const Value& self, Arguments& arguments)) {
  return Value::FromObject(std::make_shared<Function>(
      std::string(name),
      [self, method](Interpreter&, Arguments& arguments) { return method(self, arguments); },
      "builtin_function_or_method", self.depth()));
}

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value DictGet(const Value& self, Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().Find(bound[0]);
  return found != nullptr ? *found : bound.Get(1, Value::None());
}

template <DictView::Part kPart>
Value View(const Value& self, Arguments& arguments) {
  ExpectNoArguments("items", arguments);
  return Value::FromObject(std::make_shared<DictView>(self, kPart));
}

Value DictCopy(const Value& self, Arguments& arguments) {
  ExpectNoArguments("copy", arguments);
  auto dict = std::make_shared<DictData>();
  for (const auto& [key, value] : self.dict().entries()) dict->Set(key, value);
  return Value::Dict(std::move(dict));
}

std::optional<Value> DictAttribute(const Value& value, std::string_view name) {
  if (name == "get") return BindTo(value, name, DictGet);
  if (name == "items") return BindTo(value, name, View<DictView::Part::kItems>);
  if (name == "keys") return BindTo(value, name, View<DictView::Part::kKeys>);
  if (name == "values") return BindTo(value, name, View<DictView::Part::kValues>);
  if (name == "copy") return BindTo(value, name, DictCopy);
  if (IsOneOf(name, {"clear", "pop", "popitem", "setdefault", "update"}))
    return Value::UnsafeAttribute(name, value);
  return std::nullopt;
}

Value SequenceCount(const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  return Value::Integer(static_cast<int64_t>(
      std::count_if(self.items().begin(), self.items().end(),
                    [&](const Value& item) { return Equal(item, bound[0]); })));
}

Value SequenceIndex(const Value& self, Arguments& arguments) {
  const Bound bound("index", arguments, {"value", "start", "stop"}, 1);
  const auto size = static_cast<int64_t>(self.items().size());
  const auto clip = [size](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  };
  for (int64_t i = clip(bound.Index(1, 0)); i < clip(bound.Index(2, size)); ++i) {
    if (Equal(self.items()[static_cast<size_t>(i)], bound[0])) return Value::Integer(i);
  }
  FailValue("the value is not in the " + self.TypeName());
}

Value ListCopy(const Value& self, Arguments& arguments) {
  ExpectNoArguments("copy", arguments);
  return Value::List(ToVector(self));
}

std::optional<Value> SequenceAttribute(const Value& value, std::string_view name) {
  if (name == "count") return BindTo(value, name, SequenceCount);
  if (name == "index") return BindTo(value, name, SequenceIndex);
  if (value.is_tuple()) {
    if (static_cast<const ListData&>(*value.heap()).is_group) {
      if (name == "grouper") return value.items()[0];
      if (name == "list") return value.items()[1];
    }
    return std::nullopt;
  }
  if (name == "copy") return BindTo(value, name, ListCopy);
  if (IsOneOf(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"})) {
    return Value::UnsafeAttribute(name, value);
  }
  return std::nullopt;
}

Value DecodeBytes(const Value& self, Arguments& arguments) {
  const Bound bound("decode", arguments, {"encoding", "errors"});
  SpendSearch(self.bytes().size());
  if (!IsValidUtf8(self.bytes())) FailValue("'utf-8' codec can't decode these bytes");
  return Value::String(self.bytes());
}

}  // namespace

std::optional<Value> TypeAttribute(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString: return StringAttribute(value, name);
    case Kind::kDict: return DictAttribute(value, name);
    case Kind::kList:
    case Kind::kTuple: return SequenceAttribute(value, name);
    case Kind::kBytes:
      if (name == "decode") return BindTo(value, name, DecodeBytes);
      return std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace sluice::jinja
