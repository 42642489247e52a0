// Says a JSON schema in the keywords that the engine enforces. What cannot be said so is left out,
// and named.
//
// Every position of a schema is taken as the schemas that hold there together (SchemaPieces), made
// into parts (schema_part.h) in which `allOf`, `not`, `oneOf`, `if` and the like are worked out,
// and written again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "constraints/schema_part.h"

namespace sluice {

// The schema that `pointer` ("#/a/b") leads to; null where there is none.
const json::Value* ResolvePointer(const json::Value& root, std::string_view pointer);
// Whether `$ref`, null or a string, leads into the schema.
bool IsLocalReference(const json::Value* ref);

struct RewrittenSchema {
  json::Value schema;
  std::vector<std::string> not_enforced;  // keywords, each with its place
};

// Where vLLM gives a schema a meaning of its own, that meaning is kept: a schema with `properties`
// or `items` and without `type` is an object or an array, an object with `properties` and a list
// with `prefixItems` hold nothing else unless told so, a `pattern` matches the whole string.
//
// kInvalidArgument: `uniqueItems` of what is not a small enumeration, references that lead too
// deep. REQUIRES: the kinds of the keywords' values are as JSON Schema says; `root` outlives it.
class SchemaRewriter {
 public:
  explicit SchemaRewriter(const json::Value& root) : root_(root) {}
  Result<RewrittenSchema> Run();

 private:
  struct Entry {
    std::string name;  // "#" for the root, else below "$defs"
    bool is_done = false;
    bool is_named = false;
    json::Value schema;
    std::vector<std::string> notes;
  };
  using Key = std::vector<const json::Value*>;
  static constexpr int kMaxDepth = 200;
  static constexpr size_t kMaxWork = 200'000;  // in small steps
  static constexpr size_t kMaxParts = 256;

  // A schema for what all the pieces allow; false where that is nothing.
  json::Value Rewrite(const SchemaPieces& pieces);
  json::Value RewriteEntry(const SchemaPieces& pieces);
  std::optional<json::Value> RewriteBranches(const SchemaPieces& pieces);
  static Key KeyOf(const SchemaPieces& pieces);

  // Meaning of schemas (schema_reader.cc).
  SchemaPieces Flatten(const SchemaPieces& pieces);
  // Whether `from` is `to`, or leads there by `$ref` and `allOf` alone.
  bool LeadsTo(const json::Value& from, const json::Value& to);
  Parts PartsOf(const SchemaPieces& pieces);
  Parts OwnParts(const SchemaPiece& piece);
  Part ObjectPart(const SchemaPiece& piece);
  Part ArrayPart(const SchemaPiece& piece);
  Parts WithApplicators(Parts parts, const SchemaPiece& piece);
  Parts WithOneOf(const Parts& parts, const SchemaPiece& piece, const json::Value::Array& branches);
  Parts WithCondition(Parts parts, const SchemaPiece& piece);
  Parts WithDependents(Parts parts, const SchemaPiece& piece);
  void ApplyUnevaluated(const SchemaPieces& pieces, Parts& parts);

  // Sets of parts (schema_sets.cc).
  Parts Both(const Parts& a, const Parts& b);
  // Nothing where it cannot be said.
  std::optional<Parts> Without(const Parts& parts, const Parts& taken);
  std::optional<Parts> Opposite(const Part& part, bool among_integers);
  bool IsEmpty(const Parts& parts);
  bool AreApart(const Parts& a, const Parts& b);
  SchemaPieces Negated(const SchemaPieces& pieces, const std::string& place);
  std::optional<std::vector<json::Value>> Enumerate(const Parts& parts, size_t most);

  // Whether a value is allowed; nothing where that is not known.
  std::optional<bool> Holds(const json::Value& value, const SchemaPieces& pieces);
  std::optional<bool> Holds(const json::Value& value, const Parts& parts);
  std::optional<bool> Holds(const json::Value& value, const Part& part);
  std::optional<bool> HoldsItems(const json::Value& value, const Part& part);
  std::optional<bool> HoldsMembers(const json::Value& value, const Part& part);

  // Writing (schema_writer.cc).
  json::Value Write(const Parts& parts);
  json::Value WritePart(const Part& part);
  json::Value WriteNumber(const Part& part);
  json::Value WriteString(const Part& part);
  json::Value WriteArray(Part part);
  json::Value WriteUnique(const Part& part);
  json::Value WriteObject(Part part);
  void CompleteProperties(Part& part);
  void WritePatterns(const Part& part, bool is_closed, json::Value& schema);
  json::Value WriteValues(const std::vector<json::Value>& values, const std::string& place);

  void Note(std::string_view keyword, std::string_view place);
  SchemaPiece Child(const SchemaPiece& piece, const json::Value& schema, std::string_view name,
                    std::string_view key = {});
  // Whether there is work left; else what is asked for is answered anyhow.
  bool Spend(size_t work = 1);

  const json::Value& root_;
  std::map<Key, Entry> entries_;
  std::map<Key, json::Value> negated_;
  std::vector<std::string> notes_;
  std::optional<Error> refused_;
  size_t work_ = 0;
  int depth_ = 0;
  bool is_too_large_ = false;
  bool is_too_deep_ = false;
};

}  // namespace sluice
