// GET /tokenizer_info: the tokenizer's settings, in the format of transformers.
#include "base/json.h"
#include "server/api/common/field_reader.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus TokenizerInfo(const RouteCall& call) {
  API_RETURN_IF_ERROR(CheckModelIsLoaded(call));
  json::Value info = call.model->tokenizer->config();
  if (!info.is_object()) info = json::Value(json::Value::Object{});
  std::erase_if(info.as_object(), [](const json::Value::Member& member) {
    return member.first == "extra_special_tokens" && !IsTruthy(&member.second);
  });
  if (const json::Value* added = info.Find("added_tokens_decoder");
      added != nullptr && added->is_object()) {
    json::Value flat{json::Value::Object{}};
    for (const auto& [id, token] : added->as_object()) {
      const json::Value* content = token.Find("content");
      // Ids are distinct, so no search is needed: Set() would search for each of thousands, on an
      // I/O thread.
      flat.as_object().emplace_back(id, content != nullptr ? *content : token);
    }
    info.Set("added_tokens_decoder", std::move(flat));
  }
  if (const ChatTemplate* chat_template = call.model->templates.Select(false))
    info.Set("chat_template", chat_template->source());
  info.Set("truncation_side", "left");
  info.Set("name_or_path", call.api.config.model_argument);
  info.Set("is_local", true);
  info.Set("local_files_only", true);
  info.Set("backend", "tokenizers");
  call.client->Send(JsonResponse(json::Write(info)));
  return {};
}

}  // namespace

std::vector<Route> TokenizerInfoRoutes() {
  return {OnIoThread("/tokenizer_info", {"GET"}, RouteGate::kTokenizerInfo, TokenizerInfo,
                     "The tokenizer's settings.")};
}

}  // namespace sluice
