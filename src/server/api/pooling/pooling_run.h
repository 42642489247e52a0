// A request to a pooling model in progress: combines the engine's vectors for several prompts into
// one answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/api/common/api_error.h"
#include "server/api/context/route.h"

namespace sluice {

struct PooledPrompt {
  std::vector<int32_t> tokens;
  std::optional<int32_t> second_text = {};  // as Request::second_text
};

struct PoolingJob {
  std::string id;
  std::vector<PooledPrompt> prompts;  // at least one
  int64_t priority = 0;
  std::optional<int> engine;  // index of the engine; nullopt: any
  std::string cache_salt;
  std::shared_ptr<const AdapterUse> adapter;  // null: no adapter
  std::string model_name;                     // the model's name in the answer

  int64_t num_tokens() const;  // total of all prompts
};

// Formats the response from the vectors, one per prompt, in the order of the prompts. Called once,
// on a worker.
using PoolingAnswer = std::function<ApiResult<HttpResponse>(std::vector<std::vector<float>>)>;

// Submits the prompts to the engine, and answers `call.client` once it has all vectors. If the
// client disconnects or a prompt fails, the other prompts are aborted immediately. 413 or 503 if
// the memory for prompts and vectors is refused. REQUIRES: called on a worker thread; `call.model`
// pools.
ApiStatus StartPooling(const RouteCall& call, PoolingJob job, PoolingAnswer answer);

}  // namespace sluice
