#include "server/api/common/request_trace.h"

#include <chrono>
#include <utility>

namespace sluice {
namespace {

int64_t NanosecondsNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::shared_ptr<const RequestTrace> RequestTrace::Begin(std::shared_ptr<SpanExporter> exporter,
                                                        const HttpRequest& request, std::string id,
                                                        std::string model, int n,
                                                        const SamplingParams& sampling) {
  if (exporter == nullptr) return nullptr;
  const std::string* parent = request.Header("traceparent");
  const std::string* state = request.Header("tracestate");
  std::optional<TraceContext> context;
  if (parent != nullptr) context = ParseTraceContext(*parent, state == nullptr ? "" : *state);
  if (context && !context->sampled()) return nullptr;
  std::shared_ptr<RequestTrace> trace(new RequestTrace);
  trace->exporter_ = std::move(exporter);
  trace->id_ = std::move(id);
  trace->model_ = std::move(model);
  trace->n_ = n;
  trace->temperature_ = sampling.temperature;
  trace->top_p_ = sampling.top_p;
  TraceSpan& span = trace->begun_;
  span.name = "llm_request";
  span.start_ns = NanosecondsNow();
  if (context) {
    span.trace_id = context->trace_id;
    span.parent_id = context->span_id;
    span.flags = context->flags;
    span.trace_state = std::move(context->state);
  } else {
    span.trace_id = RandomTraceId();
  }
  return trace;
}

void RequestTrace::Finish(const RequestStats& stats) const {
  TraceSpan span = begun_;
  span.span_id = RandomSpanId();
  span.end_ns = NanosecondsNow();
  const double seconds = static_cast<double>(span.end_ns - span.start_ns) * 1e-9;
  span.attributes = {
      {"gen_ai.response.model", model_},
      {"gen_ai.request.id", id_},
      {"gen_ai.request.n", int64_t{n_}},
      {"gen_ai.request.max_tokens", stats.max_tokens},
      {"gen_ai.request.temperature", temperature_},
      {"gen_ai.request.top_p", top_p_},
      {"gen_ai.usage.prompt_tokens", stats.prompt_tokens},
      {"gen_ai.usage.completion_tokens", stats.generated_tokens},
      {"gen_ai.latency.e2e", seconds},
      {"gen_ai.latency.time_in_queue", stats.queue_seconds},
      {"gen_ai.latency.time_in_model_prefill", stats.prefill_seconds},
      {"gen_ai.latency.time_in_model_decode", stats.decode_seconds},
      {"gen_ai.latency.time_in_model_inference", stats.inference_seconds},
  };
  if (stats.first_token_seconds)
    span.attributes.push_back({"gen_ai.latency.time_to_first_token", *stats.first_token_seconds});
  exporter_->Export(std::move(span));
}

}  // namespace sluice
