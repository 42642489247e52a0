// Filters that read a whole sequence.
#include <algorithm>

#include "chat/jinja/arguments.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

Value LengthOf(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("len", arguments);
  return Value::Integer(static_cast<int64_t>(Length(input)));
}

Value ListOf(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_list", arguments);
  return Value::List(ToVector(input));
}

Value First(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_first", arguments);
  Value item;
  if (Iterate(input)->Next(item)) return item;
  return Value::Undefined("No first item, sequence was empty.");
}

// Returns reversed(value) as a vector; nullopt if the value is not reversible.
std::optional<std::vector<Value>> Reversed(const Value& value) {
  if (value.kind() == Kind::kObject && value.As<Range>() == nullptr &&
      value.As<DictView>() == nullptr)
    return std::nullopt;
  if (!value.is_undefined() && TryIterate(value) == nullptr) return std::nullopt;
  std::vector<Value> items = ToVector(value);
  std::reverse(items.begin(), items.end());
  return items;
}

Value Last(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_last", arguments);
  if ((input.is_list() || input.is_tuple()) && !input.items().empty()) return input.items().back();
  const auto items = Reversed(input);
  if (!items) FailType("'" + input.TypeName() + "' object is not reversible");
  return items->empty() ? Value::Undefined("No last item, sequence was empty.") : items->front();
}

Value Generated(std::vector<Value> items, const char* type_name) {
  const Value list = Value::List(std::move(items));
  return MakeGenerator(
      list,
      [list, index = size_t{0}](Value& value) mutable {
        if (index >= list.items().size()) return false;
        value = list.items()[index++];
        return true;
      },
      type_name);
}

Value Reverse(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_reverse", arguments);
  if (input.is_string())
    return GetSlice(input, Value::None(), Value::None(), Value::Integer(int64_t{-1}));
  if (auto items = Reversed(input)) return Generated(*std::move(items), "list_reverseiterator");
  if (TryIterate(input) == nullptr) Fail(FailureKind::kRuntime, "argument must be iterable");
  std::vector<Value> items = ToVector(input);
  std::reverse(items.begin(), items.end());
  return Value::List(std::move(items));
}

Value Join(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_join", arguments, {"d", "attribute"});
  const std::string separator = bound.Has(0) ? Str(bound[0]) : "";
  const Getter getter = MakeGetter(bound.Get(1, Value::None()), Value(), false);
  const IteratorPointer iterator = Iterate(input);
  std::string text;
  Value item;
  for (bool is_first = true; iterator->Next(item); is_first = false) {
    if (!is_first) {
      SpendAppend(text.size(), separator.size());
      text += separator;
    }
    AppendStr(text, bound.IsNoneOrAbsent(1) ? item : getter(item));
  }
  return Value::String(std::move(text));
}

using Keyed = std::pair<Value, Value>;  // The key that is compared, and the item it belongs to.

void SortByKey(std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [reverse](const Keyed& a, const Keyed& b) {
    return reverse ? LessThan(b.first, a.first) : LessThan(a.first, b.first);
  });
}

std::vector<Value> Values(std::vector<Keyed> items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (Keyed& item : items) values.push_back(std::move(item.second));
  return values;
}

Value Sort(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool ignore_case = !bound.Flag(1);
  std::vector<Getter> getters;
  if (bound.Has(2) && bound[2].is_string()) {
    std::string_view rest = bound[2].text();
    while (true) {
      const size_t comma = rest.find(',');
      getters.push_back(
          MakeGetter(Value::String(std::string(rest.substr(0, comma))), Value(), ignore_case));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    getters.push_back(MakeGetter(bound.Get(2, Value::None()), Value(), ignore_case));
  }
  std::vector<Keyed> items;
  for (Value& item : ToVector(input)) {
    std::vector<Value> key;
    for (const Getter& getter : getters) key.push_back(getter(item));
    items.emplace_back(Value::List(std::move(key)), std::move(item));
  }
  SortByKey(items, bound.Flag(0));
  return Value::List(Values(std::move(items)));
}

Value DictSort(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.Has(1) ? Str(bound[1]) : "key";
  if (by != "key" && by != "value")
    Fail(FailureKind::kRuntime, "You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) input.FailUndefined();
  if (!input.is_dict()) FailType("'" + input.TypeName() + "' object has no attribute 'items'");
  const Getter fold = MakeGetter(Value::None(), Value(), !bound.Flag(0));
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries()) {
    items.emplace_back(fold(by == "key" ? key : value), Value::Tuple({key, value}));
  }
  SortByKey(items, bound.Flag(2));
  return Value::List(Values(std::move(items)));
}

Value Unique(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_unique", arguments, {"case_sensitive", "attribute"});
  const Getter getter = MakeGetter(bound.Get(1, Value::None()), Value(), !bound.Flag(0));
  const IteratorPointer iterator = Iterate(input);
  auto seen = std::make_shared<DictData>();
  return MakeGenerator(input, [=](Value& value) {
    while (iterator->Next(value)) {
      const Value key = getter(value);
      if (seen->Find(key) != nullptr) continue;
      seen->Set(key, Value::None());
      return true;
    }
    return false;
  });
}

template <bool kMax>
Value Extreme(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_min", arguments, {"case_sensitive", "attribute"});
  const Getter getter = MakeGetter(bound.Get(1, Value::None()), Value(), !bound.Flag(0));
  const IteratorPointer iterator = Iterate(input);
  Value best, best_key, item;
  while (iterator->Next(item)) {
    const Value key = getter(item);
    if (best.is_missing() || (kMax ? LessThan(best_key, key) : LessThan(key, best_key))) {
      best = item;
      best_key = key;
    }
  }
  return best.is_missing() ? Value::Undefined("No aggregated item, sequence was empty.") : best;
}

Value Sum(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_sum", arguments, {"attribute", "start"});
  const Getter getter = MakeGetter(bound.Get(0, Value::None()), Value(), false);
  Value total = bound.Get(1, Value::Integer(int64_t{0}));
  if (total.is_string()) FailType("sum() can't sum strings [use ''.join(seq) instead]");
  const IteratorPointer iterator = Iterate(input);
  Value item;
  while (iterator->Next(item)) total = Apply(BinaryOperator::kAdd, total, getter(item));
  return total;
}

Value GroupBy(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool ignore_case = !bound.Flag(2);
  const Getter getter = MakeGetter(bound[0], bound.Get(1, Value::None()), ignore_case);
  const Getter exact = MakeGetter(bound[0], bound.Get(1, Value::None()), false);
  std::vector<Keyed> items;
  for (Value& item : ToVector(input)) items.emplace_back(getter(item), std::move(item));
  SortByKey(items, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    std::vector<Value> members;
    const Value key = items[i].first;
    for (; i < items.size() && Equal(items[i].first, key); ++i) members.push_back(items[i].second);
    if (members.empty())
      // Adds at least one item to the group, because a NaN key is not equal to itself.
      members.push_back(items[i++].second);
    const Value name = ignore_case ? exact(members[0]) : key;
    Value group = Value::Tuple({name, Value::List(std::move(members))});
    static_cast<ListData&>(*group.heap()).is_group = true;
    groups.push_back(std::move(group));
  }
  return Value::List(std::move(groups));
}

Value Batch(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_batch", arguments, {"linecount", "fill_with"}, 1);
  const Value& count = bound[0];
  const Value fill = bound.Get(1, Value::None());
  const IteratorPointer iterator = Iterate(input);
  return MakeGenerator(input, [=, carried = Value()](Value& value) mutable {
    std::vector<Value> row;
    if (!carried.is_missing()) row.push_back(std::exchange(carried, Value()));
    Value item;
    while (iterator->Next(item)) {
      if (Equal(Value::Integer(static_cast<int64_t>(row.size())), count)) {
        carried = item;
        break;
      }
      row.push_back(item);
    }
    if (row.empty() && carried.is_missing()) return false;
    if (carried.is_missing() && !fill.is_none()) {
      const int64_t width = ToIndex(count, "an integer is required, not a value");
      if (width > 0) {
        RequireMemory(std::min<size_t>(static_cast<size_t>(width), SIZE_MAX / 64) * sizeof(Value));
        Spend(width / 4);
      }
      while (static_cast<int64_t>(row.size()) < width) row.push_back(fill);
    }
    value = Value::List(std::move(row));
    return true;
  });
}

Value Slices(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_slice", arguments, {"slices", "fill_with"}, 1);
  return MakeGenerator(input, [input, bound, list = Value(), i = int64_t{0},
                               position = size_t{0}](Value& value) mutable {
    if (list.is_missing()) list = Value::List(ToVector(input));
    const int64_t count = bound.Index(0, 0);
    if (count == 0) Fail(FailureKind::kRuntime, "integer division or modulo by zero");
    if (i >= count) return false;
    const std::vector<Value>& items = list.items();
    const auto size = static_cast<int64_t>(items.size());
    const bool is_longer = i++ < size % count;
    const auto width = static_cast<size_t>(size / count + (is_longer ? 1 : 0));
    std::vector<Value> row(items.begin() + static_cast<std::ptrdiff_t>(position),
                           items.begin() + static_cast<std::ptrdiff_t>(position + width));
    position += width;
    if (!bound.IsNoneOrAbsent(1) && !is_longer) row.push_back(bound[1]);
    value = Value::List(std::move(row));
    return true;
  });
}

Value Items(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_items", arguments);
  if (input.is_undefined()) return Generated({}, "generator");
  const IteratorPointer iterator =
      input.is_dict() ? DictView(input, DictView::Part::kItems).Iterate() : nullptr;
  return MakeGenerator(input, [=](Value& value) {
    if (iterator == nullptr) FailType("Can only get item pairs from a mapping.");
    return iterator->Next(value);
  });
}

}  // namespace

void AddListFilters(FilterTable& table) {
  table.insert({{"length", LengthOf},
                {"count", LengthOf},
                {"list", ListOf},
                {"first", First},
                {"last", Last},
                {"reverse", Reverse},
                {"join", Join},
                {"sort", Sort},
                {"dictsort", DictSort},
                {"unique", Unique},
                {"min", Extreme<false>},
                {"max", Extreme<true>},
                {"sum", Sum},
                {"groupby", GroupBy},
                {"batch", Batch},
                {"slice", Slices},
                {"items", Items}});
}

}  // namespace sluice::jinja
