#include "models/kind_ropes.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace {

struct ReadRope {
  RopeConfig rope;
  // Size of the rotated part of a head, and divisor of the exponents; 0: no rotation.
  int64_t width = 0;

  // As in transformers, an odd width rotates one more element.
  int64_t rotated() const { return width + width % 2; }
};

// Returns whether a scaling cannot be expressed as a fixed table for this kind of layer.
bool IsUnsupported(const RopeScaling& scaling, bool is_sliding) {
  return is_sliding || scaling.kind == RopeKind::kDynamic || scaling.kind == RopeKind::kLongRope;
}

Result<ReadRope> ReadOne(const JsonFields& blocks, const json::Value* all, bool is_sliding,
                         const KindRopes& defaults, bool is_used, const ModelConfig& config) {
  const KindRope& absent = is_sliding ? defaults.sliding : defaults.full;
  const char* kind = is_sliding ? kSlidingAttention : kFullAttention;
  const std::string name = fmt::format("rope_parameters.{}", kind);
  ReadRope read{.rope = {.theta = absent.theta, .partial_rotary_factor = absent.part}};
  if (all != nullptr) {
    const bool is_null = defaults.may_be_null && blocks.Has(kind) && !blocks.Given(kind);
    if (is_null) return read;
    ASSIGN_OR_RETURN(const json::Value* block, blocks.Object(kind));
    if (block == nullptr && is_used) return blocks.Missing(kind);
    if (block != nullptr) {
      const json::Value around(
          json::Value::Object{{"max_position_embeddings", config.max_position_embeddings}});
      ASSIGN_OR_RETURN(read.rope, ParseRopeBlock(around, *block, name, absent.theta));
      // Without partial_rotary_factor, a block rotates whole heads.
      if (!read.rope.partial_rotary_factor) read.rope.partial_rotary_factor = 1;
    }
  }
  if (read.rope.scaling && IsUnsupported(*read.rope.scaling, is_sliding)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}.rope_type '{}' is not supported by this architecture; supported "
                            "are default and, in layers that see everything, linear, llama3 and "
                            "yarn",
                            name, RopeKindName(read.rope.scaling->kind)),
                name + ".rope_type");
  }
  const double part = *read.rope.partial_rotary_factor;
  read.width = static_cast<int64_t>(static_cast<double>(config.head_dim) * part);
  const bool is_odd = read.width % 2 != 0;
  if (read.width >= 1 && read.width <= config.head_dim && !(is_odd && read.rope.scaling))
    return read;
  return blocks.Bad(fmt::format("{}.partial_rotary_factor", kind),
                    fmt::format("a part of head_dim {}{}", config.head_dim,
                                is_odd ? " that is an even number, because rope is scaled" : ""),
                    json::Value(part));
}

}  // namespace

Status ReadKindRopes(const JsonFields& fields, const KindRopes& defaults,
                     const std::vector<bool>& slides, ModelConfig& config) {
  ASSIGN_OR_RETURN(const json::Value* all, fields.Object("rope_parameters"));
  const json::Value none{json::Value::Object{}};
  const JsonFields blocks(all == nullptr ? none : *all, "rope_parameters.");
  ReadRope ropes[2];
  for (const bool is_sliding : {false, true}) {
    const bool is_used = std::find(slides.begin(), slides.end(), is_sliding) != slides.end();
    ASSIGN_OR_RETURN(ropes[is_sliding ? 1 : 0],
                     ReadOne(blocks, all, is_sliding, defaults, is_used, config));
  }
  // The model's RoPE settings are those of layers that attend to all positions or, if these have no
  // RoPE, those of layers with a window.
  const bool has_full = ropes[0].width > 0;
  config.rope = ropes[has_full ? 0 : 1].rope;
  config.rotary_dim = ropes[has_full ? 0 : 1].rotated();
  config.spec.rope_tables.clear();
  for (const ReadRope& read : ropes) {
    config.spec.rope_tables.push_back(read.width == 0 ? std::vector<float>(1)
                                                      : RopeTableOf(read.rope, read.width));
  }
  for (size_t i = 0; i < slides.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    const ReadRope& own = ropes[slides[i] ? 1 : 0];
    attention.rope = own.width > 0;
    attention.rope_table = slides[i] ? 1 : 0;
    attention.rotary_dim = static_cast<int>(own.rotated());
  }
  return {};
}

}  // namespace sluice
