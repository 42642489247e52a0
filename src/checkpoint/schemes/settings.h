// Strict reading of quantization configurations.
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

// Input of every scheme's reader.
struct SchemeSource {
  std::optional<QuantizationSettings> config;   // inside config.json
  std::optional<QuantizationSettings> sidecar;  // hf_quant_config.json and its like
  ElementType plain_type = ElementType::kBF16;  // of weights that are not quantized
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

// True for null, false, "", [], {}: the setting has no effect.
bool IsEmptySetting(const json::Value& value);

// Every key of the object must be in `known`, since an unknown one may affect results. Unknown keys
// with an empty setting are ignored.
Status CheckKeys(const json::Value& object, const std::string& where,
                 std::initializer_list<std::string_view> known);

// The field must be absent, null or one of `allowed` (strings, ignoring case).
Status CheckString(const json::Value& object, const std::string& where, std::string_view name,
                   std::initializer_list<std::string_view> allowed);
Status CheckBool(const json::Value& object, const std::string& where, std::string_view name,
                 bool allowed);
// The field must be absent, null, false or empty; `why`: reason for the message.
Status CheckEmpty(const json::Value& object, const std::string& where, std::string_view name,
                  std::string_view why);

tl::unexpected<Error> UnsupportedSetting(const std::string& where, std::string_view name,
                                         const json::Value& found, std::string_view supported);

// Whether a kv_cache_scheme (an object, a string or null) asks for an FP8 cache. The error for an
// unsupported scheme names it.
Result<bool> ReadKvCacheScheme(const json::Value* value, const std::string& where,
                               std::string_view name);

}  // namespace sluice
