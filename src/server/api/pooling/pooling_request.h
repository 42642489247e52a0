// What the requests to a model that pools have in common: texts or token ids, how they are cut, and
// how vectors are wanted.
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

// The fields of a request; their types are checked.
struct PoolingFields {
  SamplingFields common;  // model, truncation, priority, salt, id; the rest is not read
  bool add_special_tokens = true;
  std::optional<bool> use_activation;  // false: vectors as they are
  std::optional<int64_t> dimensions;
  std::string encoding = "float";  // or base64: of F32 in this order of bytes
  std::string endianness = "native";
};

PoolingFields ReadPoolingFields(FieldReader& reader);

// 400 where the model generates, or pools for another purpose than `task`, or lacks the dimensions;
// 404 for a model that is not served. `path`: of the route.
ApiStatus CheckPooling(const RouteCall& call, const PoolingFields& fields,
                       std::optional<ModelTask> task);

// A job without prompts, whose id begins with `prefix`.
ApiResult<PoolingJob> MakePoolingJob(const RouteCall& call, const PoolingFields& fields,
                                     std::string_view prefix);

// The tokens of one text, with `prompt` in front, or with the model's default one.
ApiResult<std::vector<int32_t>> EncodePooled(const RouteCall& call, const PoolingFields& fields,
                                             std::string text, const std::string* prompt = nullptr);

// The tokens of a conversation of two messages, each a role and a text, in the chat template,
// without the start of an answer.
ApiResult<std::vector<int32_t>> EncodeMessages(
    const RouteCall& call, const PoolingFields& fields,
    const std::pair<std::string_view, std::string>& first,
    const std::pair<std::string_view, std::string>& second, bool add_special_tokens,
    const json::Value& template_kwargs = {});

// Reads `input` (texts, token ids, or lists of them) or `messages` of the body, and adds the tokens
// of each to `job`. 400 for what is not well formed, empty or too long.
ApiStatus AddInputs(const RouteCall& call, FieldReader& reader, PoolingFields& fields,
                    PoolingJob& job);

}  // namespace sluice
