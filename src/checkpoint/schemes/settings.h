// Reads quantization configurations strictly: unknown keys are errors.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "checkpoint/quantization.h"
#include "checkpoint/scheme.h"

namespace sluice {

// The input from which every scheme is read.
struct SchemeSource {
  std::optional<QuantizationSettings> config;   // the block inside config.json
  std::optional<QuantizationSettings> sidecar;  // hf_quant_config.json or a similar file
  ElementType plain_type = ElementType::kBF16;  // element type of weights that are not quantized
};

using SchemeResult = Result<std::shared_ptr<const QuantizationScheme>>;

SchemeResult ReadModelOpt(const SchemeSource& source);
SchemeResult ReadQuark(const SchemeSource& source);
SchemeResult ReadFp8(const SchemeSource& source);
SchemeResult ReadFbgemmFp8(const SchemeSource& source);
SchemeResult ReadCompressedTensors(const SchemeSource& source);
SchemeResult ReadMxfp4(const SchemeSource& source);
SchemeResult ReadGptq(const SchemeSource& source);
SchemeResult ReadAwq(const SchemeSource& source);

// Returns true for null, false, "", [] and {}, which mean that the setting has no effect.
bool IsEmptySetting(const json::Value& value);

// Fails if the object has a key that is not in `known`, because it may affect results. Unknown keys
// with an empty setting are ignored.
Status CheckKeys(const json::Value& object, const std::string& where,
                 std::initializer_list<std::string_view> known);

// Fails unless the field is absent, null or one of `allowed` (strings, ignoring case).
Status CheckString(const json::Value& object, const std::string& where, std::string_view name,
                   std::initializer_list<std::string_view> allowed);
Status CheckBool(const json::Value& object, const std::string& where, std::string_view name,
                 bool allowed);
// Fails unless the field is absent, null, false or empty. `why`: the reason, for the message.
Status CheckEmpty(const json::Value& object, const std::string& where, std::string_view name,
                  std::string_view why);

tl::unexpected<Error> UnsupportedSetting(const std::string& where, std::string_view name,
                                         const json::Value& found, std::string_view supported);

// Whether a kv_cache_scheme (an object, a string or null) asks for an FP8 cache. An unsupported
// scheme is an error that names it.
Result<bool> ReadKvCacheScheme(const json::Value* value, const std::string& where,
                               std::string_view name);

}  // namespace sluice
