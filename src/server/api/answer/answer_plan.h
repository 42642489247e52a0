// Converts a request's fields to the plan of a generation and of the answer to write.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/answer/answer_writer.h"
#include "server/api/answer/generation.h"
#include "server/api/context/route.h"
#include "server/api/request/prompt.h"
#include "server/api/request/sampling_fields.h"

namespace sluice {

struct AnswerPlan {
  AnswerOptions options;
  GenerationRequest generation;
  SamplingParams sampling;  // for every sequence, without max_tokens
  std::optional<RequestedConstraint> constraint;
  size_t writer_bytes = 0;  // bytes of the request that the writer keeps, besides `options`
};

// Makes a plan without prompts. `prefix` begins the answer's id. Errors: 404 for a model that is
// not served, 400 for values out of range, in the body or in a header.
ApiResult<AnswerPlan> PlanAnswer(const RouteCall& call, std::string_view prefix,
                                 const SamplingFields& fields);

// Returns the request's id without its prefix: from the header X-Request-Id, else from the body,
// else a new one. 400 if the header is too long.
ApiResult<std::string> RequestIdOf(const HttpRequest& request, const SamplingFields& fields);
// Returns the priority from the header X-Vllm-Priority, else from the body; 0 if priorities have no
// effect.
ApiResult<int64_t> PriorityOf(const HttpRequest& request, const SamplingFields& fields,
                              const ServerConfig& config);

// Returns the engine that the header X-data-parallel-rank selects; nullopt: any. 400 if no engine
// has that index.
ApiResult<std::optional<int>> EngineOf(const HttpRequest& request, const EngineInfo& info);

// Adds a prompt. `shown`: the parts of the prompt that the answer repeats; StartAnswer fills in its
// tokens. 400 if the prompt leaves no room for the requested number of tokens.
ApiStatus AddPrompt(AnswerPlan& plan, const SamplingFields& fields, Prompt prompt,
                    AnswerOptions::Prompt shown);

// Starts the answer. `logged`: the text of the first prompt, for --enable-log-requests. 413 or 503
// if the memory that the answer keeps is refused. REQUIRES: called on a worker; the plan has a
// prompt.
ApiStatus StartAnswer(const RouteCall& call, const std::function<WriterFactory>& make_writer,
                      AnswerPlan plan, const SamplingFields& fields, std::string_view logged);

}  // namespace sluice
