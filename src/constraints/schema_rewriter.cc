#include "constraints/schema_rewriter.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/ascii.h"

namespace sluice {
namespace {

using json::Value;

constexpr std::string_view kSaysNothing[] = {"title",      "description", "default",   "examples",
                                             "deprecated", "readOnly",    "writeOnly", "$comment"};

// Whether `keyword` is the only keyword of `schema`, not counting comments and the like.
bool SaysOnly(const Value& schema, std::string_view keyword) {
  return schema.Find(keyword) != nullptr &&
         std::ranges::all_of(schema.as_object(), [&](const Value::Member& member) {
           return member.first == keyword || member.first.starts_with('$') ||
                  member.first == "definitions" ||
                  std::ranges::find(kSaysNothing, member.first) != std::end(kSaysNothing);
         });
}

// Decodes "%41" and, in a part of a pointer, "~1" and "~0".
std::string DecodePointerPart(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      plain += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
    } else {
      plain += text[i];
    }
  }
  std::string name;
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool is_escaped = plain[i] == '~' && i + 1 < plain.size();
    name += !is_escaped ? plain[i] : plain[i + 1] == '1' ? '/' : '~';
    if (is_escaped) ++i;
  }
  return name;
}

}  // namespace

bool IsLocalReference(const Value* ref) {
  return ref != nullptr && ref->as_string().starts_with('#');
}

const Value* ResolvePointer(const Value& root, std::string_view pointer) {
  if (pointer == "#" || pointer.empty()) return &root;
  if (!pointer.starts_with("#/")) return nullptr;
  const Value* current = &root;
  pointer.remove_prefix(2);
  while (current != nullptr) {
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string name = DecodePointerPart(pointer.substr(0, end));
    if (current->is_array()) {
      size_t index = 0;
      const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), index);
      const bool good = error == std::errc() && last == name.data() + name.size() &&
                        index < current->as_array().size();
      current = good ? &current->as_array()[index] : nullptr;
    } else {
      current = current->Find(name);
    }
    if (end == pointer.size()) return current;
    pointer.remove_prefix(end + 1);
  }
  return nullptr;
}

Result<RewrittenSchema> SchemaRewriter::Run() {
  const SchemaPieces root{{&root_, "#"}};
  Entry& entry = entries_[KeyOf(root)];
  entry.name = "#";
  RewrittenSchema result;
  result.schema = RewriteEntry(root);
  if (is_too_deep_) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("schemas, including their references, are nested more than {} deep",
                            kMaxDepth));
  }
  if (refused_) return tl::unexpected<Error>(*refused_);
  if (is_too_large_) {
    result.schema = root_;
    result.not_enforced = {
        "everything that the engine ignores, because there is too much to rewrite"};
    return result;
  }
  for (const std::string& note : notes_) {
    if (std::ranges::find(result.not_enforced, note) == result.not_enforced.end())
      result.not_enforced.push_back(note);
  }
  if (!result.schema.is_object()) return result;
  Value::Object definitions;
  for (auto& [key, named] : entries_) {
    if (named.is_named && named.name != "#")
      definitions.emplace_back(named.name, std::move(named.schema));
  }
  std::ranges::sort(definitions, {}, &Value::Member::first);
  if (!definitions.empty()) result.schema.Set("$defs", Value(std::move(definitions)));
  return result;
}

void SchemaRewriter::Note(std::string_view keyword, std::string_view place) {
  notes_.push_back(fmt::format("`{}` at {}", keyword, place));
}

bool SchemaRewriter::Spend(size_t work) {
  work_ += work;
  if (work_ > kMaxWork) is_too_large_ = true;
  return !is_too_large_ && !is_too_deep_;
}

SchemaPiece SchemaRewriter::Child(const SchemaPiece& piece, const Value& schema,
                                  std::string_view name, std::string_view key) {
  return {&schema, key.empty() ? fmt::format("{}/{}", piece.place, name)
                               : fmt::format("{}/{}/{}", piece.place, name, key)};
}

SchemaRewriter::Key SchemaRewriter::KeyOf(const SchemaPieces& pieces) {
  Key key;
  for (const SchemaPiece& piece : pieces) key.push_back(piece.schema);
  std::ranges::sort(key);
  return key;
}

Value SchemaRewriter::Rewrite(const SchemaPieces& pieces) {
  if (pieces.empty() || !Spend()) return Value(Value::Object{});
  const Value& first = *pieces[0].schema;
  const Value* ref = first.is_object() && pieces.size() == 1 ? first.Find("$ref") : nullptr;
  const bool is_ref = IsLocalReference(ref) && SaysOnly(first, "$ref");
  SchemaPieces target;
  if (is_ref) target = {{ResolvePointer(root_, ref->as_string()), ref->as_string()}};
  const SchemaPieces& meant = is_ref ? target : pieces;

  Entry& entry = entries_[KeyOf(meant)];
  const bool is_new = entry.name.empty();
  if (is_new) entry.name = fmt::format("s{:05}", entries_.size());
  if (is_ref || (!is_new && !entry.is_done)) entry.is_named = true;
  if (is_new) {
    const size_t num_notes = notes_.size();
    Value schema = RewriteEntry(meant);
    entry.is_done = true;
    entry.schema = std::move(schema);
    entry.notes.assign(notes_.begin() + static_cast<std::ptrdiff_t>(num_notes), notes_.end());
  } else if (entry.is_done) {
    notes_.insert(notes_.end(), entry.notes.begin(), entry.notes.end());
  }
  const bool is_nothing = entry.is_done && entry.schema.is_bool();
  if (is_nothing) return Value(false);
  // A schema that consists of a type only is written in place, not as a reference. If a reference's
  // target is an unconstrained object or list, the engine treats it as an empty one.
  const bool is_type =
      entry.is_done && entry.schema.as_object().size() == 1 && entry.schema.Find("type") != nullptr;
  if (!entry.is_named || is_type) {
    Spend();
    return entry.schema;
  }
  return Value(Value::Object{
      {"$ref", Value(entry.name == "#" ? "#" : fmt::format("#/$defs/{}", entry.name))}});
}

Value SchemaRewriter::RewriteEntry(const SchemaPieces& pieces) {
  if (++depth_ > kMaxDepth) is_too_deep_ = true;
  Value schema(Value::Object{});
  if (Spend()) {
    std::optional<Value> branches = RewriteBranches(pieces);
    schema = branches ? *std::move(branches) : Write(PartsOf(pieces));
  }
  --depth_;
  return schema;
}

// If `anyOf` or `oneOf` is the only keyword, writes the branches directly, which preserves
// references in them.
std::optional<Value> SchemaRewriter::RewriteBranches(const SchemaPieces& pieces) {
  const SchemaPiece& piece = pieces[0];
  if (pieces.size() != 1 || !piece.schema->is_object()) return std::nullopt;
  const char* keyword = SaysOnly(*piece.schema, "anyOf")   ? "anyOf"
                        : SaysOnly(*piece.schema, "oneOf") ? "oneOf"
                                                           : nullptr;
  if (keyword == nullptr) return std::nullopt;
  const Value::Array& branches = piece.schema->Find(keyword)->as_array();
  if (branches.empty()) {
    // This is invalid in JSON Schema. The engine interprets it as an answer without text, and vLLM
    // does the same.
    Note(keyword, piece.place);
    return Value(Value::Object{{"anyOf", Value(Value::Array{})}});
  }
  if (std::string_view(keyword) == "oneOf") {
    const size_t num_notes = notes_.size();
    const std::optional<Error> refused = refused_;
    std::vector<Parts> each;
    for (size_t i = 0; i < branches.size(); ++i)
      each.push_back(PartsOf({Child(piece, branches[i], keyword, std::to_string(i))}));
    bool are_apart = true;
    for (size_t i = 0; i < each.size() && are_apart; ++i) {
      for (size_t j = 0; j < i && are_apart; ++j) are_apart = AreApart(each[i], each[j]);
    }
    notes_.resize(num_notes);
    refused_ = refused;
    if (!are_apart) return std::nullopt;
  }
  Value::Array options;
  for (size_t i = 0; i < branches.size(); ++i) {
    Value option = Rewrite({Child(piece, branches[i], keyword, std::to_string(i))});
    if (!option.is_bool()) options.push_back(std::move(option));
  }
  if (options.empty()) return Value(false);
  if (options.size() == 1) return std::move(options[0]);
  return Value(Value::Object{{"anyOf", Value(std::move(options))}});
}

}  // namespace sluice
