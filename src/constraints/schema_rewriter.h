// Rewrites a JSON schema with the keywords that the engine enforces. Parts that cannot be expressed
// are left out and named.
//
// At every position, all schemas that apply together (SchemaPieces) are converted to parts
// (schema_part.h). This resolves `allOf`, `not`, `oneOf`, `if` and the like. The parts are then
// written as a schema.
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

// Returns the target of `pointer` ("#/a/b"); null if there is none.
const json::Value* ResolvePointer(const json::Value& root, std::string_view pointer);
// Whether `$ref`, null or a string, refers to a place in the schema itself.
bool IsLocalReference(const json::Value* ref);

struct RewrittenSchema {
  json::Value schema;
  std::vector<std::string> not_enforced;  // keywords that are not enforced, each with its place in
                                          // the schema
};

// Follows vLLM where it deviates from JSON Schema: a schema with `properties` or `items` and
// without `type` is an object or an array; an object with `properties` and a list with
// `prefixItems` allow nothing else unless the schema explicitly allows more; a `pattern` matches
// the whole string.
//
// kInvalidArgument: `uniqueItems` of values other than a small enumeration, or references nested
// too deeply. REQUIRES: the values of keywords have the types that JSON Schema defines; `root`
// outlives the object.
class SchemaRewriter {
 public:
  explicit SchemaRewriter(const json::Value& root) : root_(root) {}
  Result<RewrittenSchema> Run();

 private:
  struct Entry {
    std::string name;  // "#" for the root, else a name below "$defs"
    bool is_done = false;
    bool is_named = false;
    json::Value schema;
    std::vector<std::string> notes;
  };
  using Key = std::vector<const json::Value*>;
  static constexpr int kMaxDepth = 200;
  static constexpr size_t kMaxWork = 200'000;  // limit of work, counted in small steps
  static constexpr size_t kMaxParts = 256;

  // Returns a schema for the values that all the pieces allow; false if there are none.
  json::Value Rewrite(const SchemaPieces& pieces);
  json::Value RewriteEntry(const SchemaPieces& pieces);
  std::optional<json::Value> RewriteBranches(const SchemaPieces& pieces);
  static Key KeyOf(const SchemaPieces& pieces);

  // --- What schemas mean (schema_reader.cc).
  SchemaPieces Flatten(const SchemaPieces& pieces);
  // Whether `from` is `to`, or leads to it through `$ref` and `allOf` only.
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

  // --- Sets of parts (schema_sets.cc).
  Parts Both(const Parts& a, const Parts& b);
  // Returns nullopt if the result cannot be expressed.
  std::optional<Parts> Without(const Parts& parts, const Parts& taken);
  std::optional<Parts> Opposite(const Part& part, bool among_integers);
  bool IsEmpty(const Parts& parts);
  bool AreApart(const Parts& a, const Parts& b);
  SchemaPieces Negated(const SchemaPieces& pieces, const std::string& place);
  std::optional<std::vector<json::Value>> Enumerate(const Parts& parts, size_t most);

  // Whether a value is allowed; nullopt if unknown.
  std::optional<bool> Holds(const json::Value& value, const SchemaPieces& pieces);
  std::optional<bool> Holds(const json::Value& value, const Parts& parts);
  std::optional<bool> Holds(const json::Value& value, const Part& part);
  std::optional<bool> HoldsItems(const json::Value& value, const Part& part);
  std::optional<bool> HoldsMembers(const json::Value& value, const Part& part);

  // --- Writing (schema_writer.cc).
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
  // Counts work. Returns false once the limit is reached; results are then arbitrary.
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
