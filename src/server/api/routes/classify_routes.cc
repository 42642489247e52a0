// POST /classify.
#include <algorithm>

#include <fmt/format.h>

#include "server/api/common/model_context.h"
#include "server/api/context/route_table.h"
#include "server/api/pooling/pooled_vector.h"
#include "server/api/pooling/pooling_request.h"

namespace sluice {
namespace {

void AppendClass(std::string& out, size_t index, const std::vector<float>& probabilities,
                 const std::vector<std::string>& labels) {
  const auto best = static_cast<size_t>(
      std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
  out += fmt::format(R"({{"index":{},"label":)", index);
  if (best < labels.size()) {
    json::AppendString(out, labels[best]);
  } else {
    out += "null";
  }
  out += R"(,"probs":)";
  AppendNumbers(out, probabilities);
  out += fmt::format(R"(,"num_classes":{}}})", probabilities.size());
}

ApiStatus AnswerClassify(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  PoolingFields fields = ReadPoolingFields(reader);
  fields.dimensions.reset();
  API_RETURN_IF_ERROR(CheckPooling(call, fields, ModelTask::kClassify));
  API_ASSIGN_OR_RETURN(PoolingJob job, MakePoolingJob(call, fields, "classify-"));
  API_RETURN_IF_ERROR(AddInputs(call, reader, fields, job));
  const int64_t num_tokens = job.num_tokens();
  const auto answer = [id = job.id, name = job.model_name, model = call.model, fields, num_tokens](
                          std::vector<std::vector<float>> vectors) -> ApiResult<HttpResponse> {
    API_RETURN_IF_ERROR(CheckFinite(vectors));
    const PoolingConfig& pooling = *model->engine->info().pooling;
    std::string out = R"({"id":)";
    json::AppendString(out, id);
    out += fmt::format(R"(,"object":"list","created":{},"model":)", UnixSeconds());
    json::AppendString(out, name);
    out += R"(,"data":[)";
    for (size_t i = 0; i < vectors.size(); ++i) {
      if (i > 0) out.push_back(',');
      FinishVector(pooling, fields, vectors[i]);
      AppendClass(out, i, vectors[i], pooling.labels);
    }
    out.push_back(']');
    AppendPoolingUsage(out, num_tokens);
    out.push_back('}');
    return JsonResponse(std::move(out));
  };
  return StartPooling(call, std::move(job), answer);
}

}  // namespace

std::vector<Route> ClassifyRoutes() {
  return {WithBody("/classify", AnswerClassify, "The classes of texts.", "EmbeddingRequest",
                   "ClassList")};
}

}  // namespace sluice
