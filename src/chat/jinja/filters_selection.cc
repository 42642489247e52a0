// Filters that read a sequence item by item: map, select and similar.
#include "chat/jinja/arguments.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

// Iterates over the items of `input`. A false `input` has no items, even if it is not iterable. The
// first Next creates the iterator.
class LazyItems {
 public:
  explicit LazyItems(Value input) : input_(std::move(input)) {}
  bool Next(Value& value) {
    if (!started_) {
      started_ = true;
      if (Truth(input_)) iterator_ = Iterate(input_);
    }
    return iterator_ != nullptr && iterator_->Next(value);
  }

 private:
  Value input_;
  bool started_ = false;
  IteratorPointer iterator_;
};

// Copies arguments for one of many calls with the same arguments.
Arguments CopyOf(const Arguments& arguments) {
  Spend(static_cast<int64_t>(arguments.positional.size() / 4 + arguments.keyword.size()));
  return arguments;
}

Value TakeFirst(Arguments& arguments) {
  Value first = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

Value Map(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  Arguments rest = std::move(arguments);
  if (rest.positional.empty()) {
    Value attribute, otherwise = Value::None();
    bool is_unexpected = false;
    for (const auto& [name, value] : rest.keyword) {
      if (name == "attribute") {
        attribute = value;
      } else if (name == "default") {
        otherwise = value;
      } else {
        is_unexpected = true;
      }
    }
    return MakeGenerator(
        input, [=, items = LazyItems(input), getter = Getter()](Value& value) mutable {
          if (!items.Next(value)) return false;
          if (attribute.is_missing()) Fail(FailureKind::kRuntime, "map requires a filter argument");
          if (is_unexpected)
            Fail(FailureKind::kRuntime, "Unexpected keyword argument of the filter 'map'");
          if (getter == nullptr) getter = MakeGetter(attribute, otherwise, false);
          value = getter(value);
          return true;
        });
  }
  const Value name = TakeFirst(rest);
  return MakeGenerator(input, [&interpreter, name, rest = std::move(rest),
                               items = LazyItems(input)](Value& value) mutable {
    if (!items.Next(value)) return false;
    Arguments copy = CopyOf(rest);
    value = CallFilter(interpreter, Str(name), value, copy);
    return true;
  });
}

template <bool kKeep, bool kByAttribute>
Value Select(Interpreter&, const Value& input, Arguments& arguments) {
  Arguments rest = std::move(arguments);
  Getter getter;
  const bool lacks_attribute = kByAttribute && rest.positional.empty();
  if (kByAttribute && !lacks_attribute) getter = MakeGetter(TakeFirst(rest), Value(), false);
  Value test;
  if (!rest.positional.empty()) test = TakeFirst(rest);
  return MakeGenerator(input, [=, items = LazyItems(input)](Value& value) mutable {
    while (items.Next(value)) {
      if (lacks_attribute) Fail(FailureKind::kRuntime, "Missing parameter for attribute name");
      const Value subject = kByAttribute ? getter(value) : value;
      Arguments copy = CopyOf(rest);
      const bool holds = test.is_missing() ? Truth(subject) : CallTest(Str(test), subject, copy);
      if (holds == kKeep) return true;
    }
    return false;
  });
}

}  // namespace

void AddSelectionFilters(FilterTable& table) {
  table.insert({{"map", Map},
                {"select", Select<true, false>},
                {"reject", Select<false, false>},
                {"selectattr", Select<true, true>},
                {"rejectattr", Select<false, true>}});
}

}  // namespace sluice::jinja
