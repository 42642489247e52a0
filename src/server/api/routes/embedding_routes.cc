// POST /v1/embeddings and /pooling.
#include <fmt/format.h>

#include "server/api/common/model_context.h"
#include "server/api/context/route_table.h"
#include "server/api/pooling/pooled_vector.h"
#include "server/api/pooling/pooling_request.h"

namespace sluice {
namespace {

// The names that the answers of the two routes use.
struct Shape {
  std::string_view id_prefix;
  std::string_view object;
  std::string_view vector;
  std::optional<ModelTask> task;
};
constexpr Shape kEmbeddings = {"embd-", "embedding", "embedding", ModelTask::kEmbed};
constexpr Shape kPooling = {"pool-", "pooling", "data", std::nullopt};

ApiStatus AnswerVectors(const RouteCall& call, const json::Value& body, const Shape& shape) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  PoolingFields fields = ReadPoolingFields(reader);
  API_RETURN_IF_ERROR(CheckPooling(call, fields, shape.task));
  API_ASSIGN_OR_RETURN(PoolingJob job, MakePoolingJob(call, fields, shape.id_prefix));
  API_RETURN_IF_ERROR(AddInputs(call, reader, fields, job));
  const int64_t num_tokens = job.num_tokens();
  const auto answer =
      [id = job.id, name = job.model_name, model = call.model, fields, shape,
       num_tokens](std::vector<std::vector<float>> vectors) -> ApiResult<HttpResponse> {
    API_RETURN_IF_ERROR(CheckFinite(vectors));
    std::string out = R"({"id":)";
    json::AppendString(out, id);
    out += fmt::format(R"(,"object":"list","created":{},"model":)", UnixSeconds());
    json::AppendString(out, name);
    out += R"(,"data":[)";
    for (size_t i = 0; i < vectors.size(); ++i) {
      FinishVector(*model->engine->info().pooling, fields, vectors[i]);
      out += fmt::format(R"({}{{"index":{},"object":"{}","{}":)", i > 0 ? "," : "", i, shape.object,
                         shape.vector);
      AppendVector(out, vectors[i], fields);
      out.push_back('}');
    }
    out.push_back(']');
    AppendPoolingUsage(out, num_tokens);
    out.push_back('}');
    return JsonResponse(std::move(out));
  };
  return StartPooling(call, std::move(job), answer);
}

ApiStatus AnswerEmbeddings(const RouteCall& call, const json::Value& body) {
  return AnswerVectors(call, body, kEmbeddings);
}

ApiStatus AnswerPooling(const RouteCall& call, const json::Value& body) {
  return AnswerVectors(call, body, kPooling);
}

}  // namespace

std::vector<Route> EmbeddingRoutes() {
  return {
      WithBody("/v1/embeddings", AnswerEmbeddings, "Embeddings of texts.", "EmbeddingRequest",
               "EmbeddingList"),
      WithBody("/pooling", AnswerPooling,
               "The vectors that a pooling model computes from texts, for any pooling task.",
               "EmbeddingRequest", "PoolingList"),
  };
}

}  // namespace sluice
