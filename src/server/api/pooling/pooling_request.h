// The common part of all requests to pooling models: texts or token ids, their truncation, and the
// format of vectors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/common/field_reader.h"
#include "server/api/context/route.h"
#include "server/api/pooling/pooling_run.h"
#include "server/api/request/sampling_fields.h"

namespace sluice {

// The fields of a request. Their types are checked, their ranges are not.
struct PoolingFields {
  SamplingFields common;  // only model, truncation, priority, salt and id are read
  bool add_special_tokens = true;
  std::optional<bool> use_activation;  // false: no activation
  std::optional<int64_t> dimensions;
  std::string encoding = "float";  // "float", or "base64": F32 in the byte order `endianness`
  std::string endianness = "native";
};

PoolingFields ReadPoolingFields(FieldReader& reader);

// 400 if the model generates text, has a pooling task other than `task`, or does not support the
// requested dimensions; 404 for a model that is not served. The error names the path of `call`.
ApiStatus CheckPooling(const RouteCall& call, const PoolingFields& fields,
                       std::optional<ModelTask> task);

// Makes a job without prompts. Its id begins with `prefix`.
ApiResult<PoolingJob> MakePoolingJob(const RouteCall& call, const PoolingFields& fields,
                                     std::string_view prefix);

// Returns the tokens of one text, prefixed by `prompt` or, if that is null, by the model's default
// prompt.
ApiResult<std::vector<int32_t>> EncodePooled(const RouteCall& call, const PoolingFields& fields,
                                             std::string text, const std::string* prompt = nullptr);

// Returns the tokens of a conversation with two messages, each a role and a text, in the chat
// template, without the start of an answer.
ApiResult<std::vector<int32_t>> EncodeMessages(
    const RouteCall& call, const PoolingFields& fields,
    const std::pair<std::string_view, std::string>& first,
    const std::pair<std::string_view, std::string>& second, bool add_special_tokens,
    const json::Value& template_kwargs = {});

// Reads `input` (texts, token ids, or lists of them) or `messages` of the body, and adds the tokens
// of each to `job`. 400 for an input that is malformed, empty or too long.
ApiStatus AddInputs(const RouteCall& call, FieldReader& reader, PoolingFields& fields,
                    PoolingJob& job);

}  // namespace sluice
