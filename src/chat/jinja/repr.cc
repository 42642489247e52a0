#include "chat/jinja/repr.h"

#include <algorithm>
#include <cmath>

#include "base/json_ascii.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text;
  json::AppendDouble(text, value);
  return text;
}

namespace {

void AppendItems(std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    AppendRepr(out, items[i]);
  }
}

// Appends the text of a value that is not a container and counts its size. For a small text, only
// the step for its value is counted.
void AppendCounted(std::string& out, std::string_view text) {
  SpendAppend(out.size(), text.size());
  out += text;
}

}  // namespace

void AppendRepr(std::string& out, const Value& value) {
  Spend(1);
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: AppendCounted(out, "Undefined"); return;
    case Kind::kNone: AppendCounted(out, "None"); return;
    case Kind::kBool: AppendCounted(out, value.as_bool() ? "True" : "False"); return;
    case Kind::kInteger: AppendCounted(out, std::to_string(value.as_int64())); return;
    case Kind::kBigInteger: AppendCounted(out, value.big().ToDecimal()); return;
    case Kind::kFloat: AppendCounted(out, FloatText(value.as_float())); return;
    case Kind::kString:
      if (value.is_markup()) out += "Markup(";
      AppendRepr(out, std::string_view(value.text()));
      if (value.is_markup()) out += ")";
      return;
    case Kind::kBytes: AppendBytesRepr(out, value.bytes()); return;
    case Kind::kList:
      out += "[";
      AppendItems(out, value.items());
      out += "]";
      return;
    case Kind::kTuple:
      out += "(";
      AppendItems(out, value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kDict: {
      out += "{";
      bool is_first = true;
      for (const auto& [key, member] : value.dict().entries()) {
        if (!is_first) out += ", ";
        is_first = false;
        AppendRepr(out, key);
        out += ": ";
        AppendRepr(out, member);
      }
      out += "}";
      return;
    }
    case Kind::kObject: {
      // Only an object, such as a namespace, can contain itself.
      std::optional<Budget::Level> level;
      if (Budget* budget = Budget::Current()) level.emplace(*budget);
      AppendCounted(out, value.object().Repr());
      return;
    }
  }
}

void AppendStr(std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: return;
    case Kind::kString: AppendCounted(out, value.text()); return;
    default: AppendRepr(out, value);
  }
}

std::string Str(const Value& value) {
  std::string out;
  AppendStr(out, value);
  return out;
}

std::string Repr(const Value& value) {
  std::string out;
  AppendRepr(out, value);
  return out;
}

namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void Write(const Value& value) {
    Spend(1);
    switch (value.kind()) {
      case Kind::kNone: AppendCounted(out_, "null"); return;
      case Kind::kBool: AppendCounted(out_, value.as_bool() ? "true" : "false"); return;
      case Kind::kInteger:
      case Kind::kBigInteger: AppendRepr(out_, value); return;
      case Kind::kFloat: AppendCounted(out_, JsonFloat(value.as_float())); return;
      case Kind::kString: WriteString(value.text()); return;
      case Kind::kList:
      case Kind::kTuple: WriteArray(value.items()); return;
      case Kind::kDict: WriteObject(value.dict()); return;
      default: FailType("Object of type " + value.TypeName() + " is not JSON serializable");
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  static std::string JsonFloat(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  void WriteString(std::string_view text) {
    SpendCharacters(text.size());
    SpendAppend(out_.size(), text.size());
    style_.ensure_ascii ? json::AppendAsciiString(out_, text) : json::AppendString(out_, text);
  }

  void NewLine() {
    if (!style_.indent) return;
    SpendAppend(out_.size(), style_.indent->size() * level_);
    out_.push_back('\n');
    for (size_t i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void WriteArray(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) AppendCounted(out_, style_.item_separator);
      NewLine();
      Write(items[i]);
    }
    --level_;
    NewLine();
    out_.push_back(']');
  }

  void WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString: WriteString(key.text()); return;
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInteger:
      case Kind::kBigInteger:
      case Kind::kFloat:
        out_.push_back('"');
        Write(key);
        out_.push_back('"');
        return;
      default: FailType("keys must be str, int, float, bool or None, not " + key.TypeName());
    }
  }

  void WriteObject(const DictData& dict) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    RequireMemory(dict.size() * sizeof(const DictData::Entry*));
    std::vector<const DictData::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return LessThan(a->first, b->first); });
    }
    out_.push_back('{');
    ++level_;
    bool is_first = true;
    for (const auto* entry : entries) {
      if (!is_first) AppendCounted(out_, style_.item_separator);
      is_first = false;
      NewLine();
      WriteKey(entry->first);
      AppendCounted(out_, style_.key_separator);
      Write(entry->second);
    }
    --level_;
    NewLine();
    out_.push_back('}');
  }

  const JsonStyle& style_;
  std::string out_;
  size_t level_ = 0;
};

}  // namespace

std::string ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Write(value);
  return writer.Take();
}

}  // namespace sluice::jinja
