#include "chat/jinja/globals.h"

#include <ctime>

#include "chat/jinja/arguments.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/repr.h"

namespace sluice::jinja {

namespace {

// Implements dict(mapping or pairs, **members).
std::shared_ptr<DictData> BuildDict(Arguments& arguments) {
  auto dict = std::make_shared<DictData>();
  if (arguments.positional.size() > 1) {
    FailType("dict expected at most 1 argument, got " +
             std::to_string(arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().entries()) dict->Set(key, value);
    } else {
      for (const Value& pair : ToVector(source)) {
        if (TryIterate(pair) == nullptr)
          FailType("cannot convert dictionary update sequence element to a sequence");
        std::vector<Value> parts = ToVector(pair);
        if (parts.size() != 2) {
          FailValue("dictionary update sequence element has length " +
                    std::to_string(parts.size()) + "; 2 is required");
        }
        dict->Set(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (auto& [name, value] : arguments.keyword) dict->Set(Value::String(name), std::move(value));
  return dict;
}

Value MakeDict(Interpreter&, Arguments& arguments) {
  return Value::Dict(BuildDict(arguments));
}

Value MakeNamespace(Interpreter& interpreter, Arguments& arguments) {
  const auto dict = BuildDict(arguments);
  auto result = std::make_shared<Namespace>();
  interpreter.Keep(result);
  for (const auto& [key, value] : dict->entries()) {
    // Namespace members are read by attribute name, so other keys could never be read.
    if (key.is_string()) result->Set(key.text(), value);
  }
  return Value::FromObject(std::move(result));
}

Value MakeRange(Interpreter&, Arguments& arguments) {
  if (!arguments.keyword.empty()) FailType("range() takes no keyword arguments");
  const size_t count = arguments.positional.size();
  if (count == 0 || count > 3)
    FailType("range expected 1 to 3 arguments, got " + std::to_string(count));
  const auto at = [&](size_t i) {
    const Value& value = arguments.positional[i];
    if (value.is_undefined()) FailType("'Undefined' object cannot be interpreted as an integer");
    if (!value.is_integral())
      FailType("'" + value.TypeName() + "' object cannot be interpreted as an integer");
    return ToIndex(value, "an index");
  };
  const int64_t start = count == 1 ? 0 : at(0);
  const int64_t stop = count == 1 ? at(0) : at(1);
  const int64_t step = count == 3 ? at(2) : 1;
  if (step == 0) FailValue("range() arg 3 must not be zero");
  return Value::FromObject(std::make_shared<Range>(start, stop, step));
}

Value RaiseException(Interpreter&, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  Fail(FailureKind::kRaised, Str(bound[0]));
}

Value StrftimeNow(Interpreter& interpreter, Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const auto now = interpreter.Now();
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  std::tm fields{};
  fields.tm_year = static_cast<int>(date.year()) - 1900;
  fields.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  fields.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  fields.tm_hour = static_cast<int>(time.hours().count());
  fields.tm_min = static_cast<int>(time.minutes().count());
  fields.tm_sec = static_cast<int>(time.seconds().count());
  fields.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  const auto new_year = std::chrono::local_days(date.year() / std::chrono::January / 1);
  fields.tm_yday = static_cast<int>((day - new_year).count());
  fields.tm_isdst = -1;
  // The time has no zone, so %z and %Z become empty text, as in Python. %f becomes microseconds.
  const std::string& source = bound.Text(0);
  if (source.find('\0') != std::string::npos) FailValue("embedded null character");
  SpendText(source.size() * 32);
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '%' || i + 1 >= source.size()) {
      out.push_back(source[i]);
      continue;
    }
    std::string conversion = {'%', source[++i]};
    if ((conversion[1] == '-' || conversion[1] == '_' || conversion[1] == '0' ||
         conversion[1] == '^' || conversion[1] == '#' || conversion[1] == 'E' ||
         conversion[1] == 'O') &&
        i + 1 < source.size()) {
      conversion.push_back(source[++i]);
    }
    const char type = conversion.back();
    if (conversion.size() == 2 && (type == 'z' || type == 'Z')) continue;
    if (conversion.size() == 2 && type == 'f') {
      const std::string micros = std::to_string(time.subseconds().count());
      out += std::string(6 - micros.size(), '0') + micros;
      continue;
    }
    char buffer[256];
    const size_t size = std::strftime(buffer, sizeof buffer, conversion.c_str(), &fields);
    out.append(buffer, size);
  }
  return Value::String(std::move(out));
}

// The object that cycler(*items) creates.
class Cycler final : public Object {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) { RaiseDepth(items_.depth()); }
  std::string TypeName() const override { return "Cycler"; }
  std::optional<Value> Attribute(const std::shared_ptr<Heap>& self,
                                 std::string_view name) override {
    auto shared = std::static_pointer_cast<Cycler>(self);
    if (name == "current") return items_.items()[position_];
    if (name == "items") return items_;
    if (name == "pos") return Value::Integer(static_cast<int64_t>(position_));
    if (name == "next") {
      return Method(name, [shared](Interpreter&, Arguments& arguments) {
        ExpectNoArguments("next", arguments);
        const Value item = shared->items_.items()[shared->position_];
        shared->position_ = (shared->position_ + 1) % shared->items_.items().size();
        return item;
      });
    }
    if (name == "reset") {
      return Method(name, [shared](Interpreter&, Arguments& arguments) {
        ExpectNoArguments("reset", arguments);
        shared->position_ = 0;
        return Value::None();
      });
    }
    return std::nullopt;
  }

 private:
  Value Method(std::string_view name, Function::Body body) const {
    return Value::FromObject(
        std::make_shared<Function>(std::string(name), std::move(body), "method", depth()));
  }
  Value items_;
  size_t position_ = 0;
};

Value MakeCycler(Interpreter&, Arguments& arguments) {
  if (!arguments.keyword.empty()) FailType("cycler() takes no keyword arguments");
  if (arguments.positional.empty())
    Fail(FailureKind::kRuntime, "at least one item has to be provided");
  return Value::FromObject(std::make_shared<Cycler>(Value::Tuple(std::move(arguments.positional))));
}

// The object that joiner(sep) creates: returns "" on the first call, `sep` afterwards.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {
    RaiseDepth(separator_.depth());
  }
  std::string TypeName() const override { return "Joiner"; }
  bool IsCallable() const override { return true; }
  Value Call(Interpreter&, Arguments arguments) override {
    ExpectNoArguments("joiner", arguments);
    return std::exchange(used_, true) ? separator_ : Value::String("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value MakeJoiner(Interpreter&, Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  return Value::FromObject(std::make_shared<Joiner>(bound.Get(0, Value::String(", "))));
}

Value Lipsum(Interpreter&, Arguments&) {
  Fail(FailureKind::kRuntime, "the function 'lipsum' is not supported in chat templates");
}

struct Global {
  std::string_view name;
  Value (*body)(Interpreter&, Arguments&);
  const char* type_name;
};
constexpr Global kGlobals[] = {{"range", MakeRange, "function"},
                               {"dict", MakeDict, "TemplateDict"},
                               {"namespace", MakeNamespace, "type"},
                               {"cycler", MakeCycler, "type"},
                               {"joiner", MakeJoiner, "type"},
                               {"lipsum", Lipsum, "function"},
                               {"raise_exception", RaiseException, "function"},
                               {"strftime_now", StrftimeNow, "function"}};

const Global* FindGlobal(std::string_view name) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return &global;
  }
  return nullptr;
}

}  // namespace

bool IsGlobal(std::string_view name) {
  return FindGlobal(name) != nullptr;
}

Value MakeGlobal(std::string_view name) {
  const Global* global = FindGlobal(name);
  return Value::FromObject(
      std::make_shared<Function>(std::string(name), global->body, global->type_name));
}

}  // namespace sluice::jinja
