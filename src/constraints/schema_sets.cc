// Combines and subtracts parts, and checks values against parts.
#include <algorithm>
#include <cmath>
#include <utility>

#include "constraints/schema_rewriter.h"

namespace sluice {
namespace {

using json::Value;

// Forbids other members in objects and lists that are closed by default.
Parts ClosedByDefault(Parts parts) {
  for (Part& part : parts) {
    if (part.is_closed_by_default && !part.rest_is_stated) part.rest = NothingAt(part.place);
  }
  return parts;
}

// Returns the conjunction of results that are true, false or unknown.
class Verdict {
 public:
  void Add(std::optional<bool> result) {
    if (!result) is_known_ = false;
    if (result && !*result) is_false_ = true;
  }
  std::optional<bool> Get() const {
    if (is_false_) return false;
    return is_known_ ? std::optional(true) : std::nullopt;
  }

 private:
  bool is_false_ = false;
  bool is_known_ = true;
};

}  // namespace

Parts SchemaRewriter::Both(const Parts& a, const Parts& b) {
  if (IsAnything(a)) return b;
  if (IsAnything(b)) return a;
  Parts both;
  for (const Part& x : a) {
    for (const Part& y : b) {
      if (!Spend()) return both;
      if (x.kind == PartKind::kValues || y.kind == PartKind::kValues) {
        const Part& listed = x.kind == PartKind::kValues ? x : y;
        const Part& other = x.kind == PartKind::kValues ? y : x;
        std::vector<Value> values;
        for (const Value& value : listed.values) {
          const std::optional<bool> holds = Holds(value, other);
          if (!holds) Note(other.pattern.empty() ? "format" : "pattern", other.place);
          if (holds.value_or(true)) values.push_back(value);
        }
        if (!values.empty()) both.push_back(PartOfValues(std::move(values), listed.place));
        continue;
      }
      if (!Spend(x.properties.size() * y.properties.size() / 16)) return both;
      std::vector<std::string_view> lost;
      std::optional<Part> part = Intersect(x, y, lost);
      if (part) both.push_back(*std::move(part));
      for (const std::string_view keyword : lost) Note(keyword, y.place);
    }
  }
  if (both.size() > kMaxParts) is_too_large_ = true;
  return both;
}

std::optional<Parts> SchemaRewriter::Without(const Parts& parts, const Parts& taken) {
  Parts left;
  for (const Part& part : parts) {
    if (part.kind == PartKind::kValues || part.kind == PartKind::kNull ||
        part.kind == PartKind::kBoolean) {
      std::vector<Value> values;
      for (const Value& value :
           part.kind == PartKind::kValues ? part.values : *Enumerate({part}, 2)) {
        const std::optional<bool> holds = Holds(value, taken);
        if (!holds) return std::nullopt;
        if (!*holds) values.push_back(value);
      }
      if (!values.empty()) left.push_back(PartOfValues(std::move(values), part.place));
      continue;
    }
    Parts now{part};
    for (const Part& other : taken) {
      if (other.kind == PartKind::kValues) {
        for (const Value& value : other.values) {
          if (!IsOfKind(value, part.kind)) continue;
          if (part.kind != PartKind::kNumber) return std::nullopt;
          Parts apart(2, PartOfType("number", part.place));
          apart[0].most = apart[1].least = value.as_double();
          apart[0].below_most = apart[1].above_least = true;
          now = Both(now, apart);
        }
      } else if (other.kind == part.kind) {
        const std::optional<Parts> opposite = Opposite(other, part.is_integer);
        if (!opposite) return std::nullopt;
        now = Both(now, *opposite);
      }
    }
    AddParts(left, now);
  }
  return left;
}

std::optional<Parts> SchemaRewriter::Opposite(const Part& part, bool among_integers) {
  Parts parts;
  const auto add = [&]() -> Part& {
    parts.emplace_back();
    parts.back().kind = part.kind;
    parts.back().place = part.place;
    return parts.back();
  };
  if ((part.is_integer && !among_integers) || part.multiple_of != 0 || !part.pattern.empty() ||
      !part.format.empty() || part.unique || !part.patterns.empty() || !part.names.empty())
    return std::nullopt;
  if (part.least != -Part::kInfinity) {
    Part& below = add();
    below.most = part.least;
    below.below_most = !part.above_least;
  }
  if (part.most != Part::kInfinity) {
    Part& above = add();
    above.least = part.most;
    above.above_least = !part.below_most;
  }
  if (part.least_size > 0) add().most_size = part.least_size - 1;
  if (part.most_size != Part::kNoLimit) add().least_size = part.most_size + 1;
  if (!part.rest.empty()) {
    const Value& rest = *part.rest[0].schema;
    if (part.kind != PartKind::kArray || rest != Value(false)) return std::nullopt;
    add().least_size = static_cast<int64_t>(part.prefix.size()) + 1;
  }
  for (size_t i = 0; i < part.prefix.size(); ++i) {
    Part& other = add();
    other.prefix.resize(i + 1);
    other.prefix[i] = Negated(part.prefix[i], part.place);
    other.least_size = static_cast<int64_t>(i) + 1;
  }
  for (const Part::Property& property : part.properties) {
    if (property.schemas.empty()) continue;
    Part& other = add();
    other.required = {property.name};
    other.properties.push_back({property.name, Negated(property.schemas, part.place)});
  }
  for (const std::string& name : part.required)
    add().properties.push_back({name, NothingAt(part.place)});
  return parts;
}

SchemaPieces SchemaRewriter::Negated(const SchemaPieces& pieces, const std::string& place) {
  if (pieces.empty()) return NothingAt(place);
  const auto [found, is_new] = negated_.try_emplace(KeyOf(pieces));
  if (is_new) {
    Value::Array all;
    for (const SchemaPiece& piece : pieces) all.push_back(*piece.schema);
    Spend(all.size());
    found->second = Value(Value::Object{
        {"not", all.size() == 1 ? std::move(all[0])
                                : Value(Value::Object{{"allOf", Value(std::move(all))}})}});
  }
  return {{&found->second, pieces[0].place}};
}

bool SchemaRewriter::IsEmpty(const Parts& parts) {
  const size_t num_notes = notes_.size();
  const std::optional<Error> refused = refused_;
  const bool is_empty =
      std::ranges::all_of(parts, [&](const Part& part) { return WritePart(part).is_bool(); });
  notes_.resize(num_notes);
  refused_ = refused;
  return is_empty;
}

bool SchemaRewriter::AreApart(const Parts& a, const Parts& b) {
  const size_t num_notes = notes_.size();
  const bool are_apart =
      IsEmpty(Both(ClosedByDefault(a), b)) && IsEmpty(Both(a, ClosedByDefault(b)));
  notes_.resize(num_notes);
  return are_apart;
}

std::optional<std::vector<Value>> SchemaRewriter::Enumerate(const Parts& parts, size_t most) {
  std::vector<Value> all;
  const auto add = [&](const Value& value) {
    const bool is_there =
        std::ranges::any_of(all, [&](const Value& other) { return SameJson(value, other); });
    if (!is_there) all.push_back(value);
    return all.size() <= most;
  };
  for (const Part& part : parts) {
    if (part.kind == PartKind::kValues && part.values.size() > most) return std::nullopt;
    if (part.kind == PartKind::kValues) {
      for (const Value& value : part.values) {
        if (!add(value)) return std::nullopt;
      }
    } else if (part.kind == PartKind::kNull) {
      add(Value(nullptr));
    } else if (part.kind == PartKind::kBoolean) {
      add(Value(true));
      add(Value(false));
    } else if (part.kind == PartKind::kNumber && part.is_integer &&
               part.most - part.least < static_cast<double>(most)) {
      for (double i = std::ceil(part.least); i <= part.most; ++i) {
        const Value value(static_cast<int64_t>(i));
        if (Holds(value, part).value_or(false) && !add(value)) return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
  }
  if (all.size() > most) return std::nullopt;
  return all;
}

std::optional<bool> SchemaRewriter::Holds(const Value& value, const SchemaPieces& pieces) {
  if (pieces.empty()) return true;
  if (!Spend()) return std::nullopt;
  const size_t num_notes = notes_.size();
  std::optional<bool> holds = Holds(value, PartsOf(pieces));
  if (notes_.size() != num_notes && holds.value_or(true)) holds = std::nullopt;
  notes_.resize(num_notes);
  return holds;
}

std::optional<bool> SchemaRewriter::Holds(const Value& value, const Parts& parts) {
  std::optional<bool> any = false;
  for (const Part& part : parts) {
    const std::optional<bool> holds = Holds(value, part);
    if (holds.value_or(false)) return true;
    if (!holds) any = std::nullopt;
  }
  return any;
}

std::optional<bool> SchemaRewriter::Holds(const Value& value, const Part& part) {
  if (!Spend()) return std::nullopt;
  if (!IsOfKind(value, part.kind)) return false;
  switch (part.kind) {
    case PartKind::kNull:
    case PartKind::kBoolean: return true;
    case PartKind::kValues:
      return std::ranges::any_of(part.values,
                                 [&](const Value& other) { return SameJson(value, other); });
    case PartKind::kNumber: {
      const double x = value.as_double();
      const bool is_multiple =
          part.multiple_of == 0 || x / part.multiple_of == std::floor(x / part.multiple_of);
      return is_multiple && (!part.is_integer || x == std::floor(x)) &&
             (part.above_least ? x > part.least : x >= part.least) &&
             (part.below_most ? x < part.most : x <= part.most);
    }
    case PartKind::kString: {
      const auto size = std::ranges::count_if(
          value.as_string(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
      if (size < part.least_size || size > part.most_size) return false;
      if (!part.pattern.empty() || !part.format.empty()) return std::nullopt;
      return true;
    }
    case PartKind::kArray: return HoldsItems(value, part);
    case PartKind::kObject: return HoldsMembers(value, part);
  }
  return std::nullopt;
}

std::optional<bool> SchemaRewriter::HoldsItems(const Value& value, const Part& part) {
  const Value::Array& items = value.as_array();
  const auto size = static_cast<int64_t>(items.size());
  if (size < part.least_size || size > part.most_size) return false;
  Verdict verdict;
  for (size_t i = 0; i < items.size(); ++i) {
    verdict.Add(Holds(items[i], i < part.prefix.size() ? part.prefix[i] : part.rest));
    for (size_t k = 0; k < i && part.unique; ++k) verdict.Add(!SameJson(items[i], items[k]));
  }
  return verdict.Get();
}

std::optional<bool> SchemaRewriter::HoldsMembers(const Value& value, const Part& part) {
  const Value::Object& members = value.as_object();
  const auto size = static_cast<int64_t>(members.size());
  if (size < part.least_size || size > part.most_size) return false;
  Verdict verdict;
  for (const std::string& name : part.required) verdict.Add(value.Find(name) != nullptr);
  for (const auto& [name, member] : members) {
    if (!part.names.empty()) verdict.Add(Holds(Value(name), part.names));
    const Part::Property* property = part.FindProperty(name);
    if (!part.patterns.empty()) {
      verdict.Add(std::nullopt);
    } else {
      verdict.Add(Holds(member, property != nullptr ? property->schemas : part.rest));
    }
  }
  return verdict.Get();
}

}  // namespace sluice
