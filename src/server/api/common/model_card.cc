#include "server/api/common/model_card.h"

#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/json.h"
#include "engine/adapters.h"

namespace sluice {
namespace {

std::string_view OwnerName(ApiDialect dialect) {
  switch (dialect) {
    case ApiDialect::kVllm: return "vllm";
    case ApiDialect::kTrtllm: return "tensorrt_llm";
    case ApiDialect::kSluice: break;
  }
  return "sluice";
}

// Fields that the clients of Mistral and Anthropic need. Each API has its own value of "type".
std::string ClientFields(const ModelCard& card, bool for_anthropic) {
  const std::time_t created = card.created;
  std::tm time{};
  gmtime_r(&created, &time);
  std::string out =
      fmt::format(R"(,"type":"{}","display_name":)", for_anthropic ? "model" : "base");
  json::AppendString(out, card.name);
  return out +
         fmt::format(R"(,"created_at":"{:%Y-%m-%dT%H:%M:%SZ}","capabilities":{{)"
                     R"("completion_chat":{},"completion_fim":false,"function_calling":{},)"
                     R"("fine_tuning":false}})",
                     time, card.has_chat, card.calls_tools) +
         card.more + "}";
}

// Returns the fields that the cards of a model and of its adapters share.
ModelCard CardOf(const ModelContext& model) {
  ModelCard card;
  card.root = model.config.model_argument;
  card.created = model.created;
  card.has_chat = !model.templates.empty();
  card.calls_tools = model.tool_parser != nullptr;
  return card;
}

}  // namespace

std::vector<ModelCard> CardsOf(const ModelContext& model) {
  std::vector<ModelCard> cards;
  for (const std::string& name : model.names) {
    ModelCard& card = cards.emplace_back(CardOf(model));
    card.name = name;
    card.max_model_len = model.max_model_len;
  }
  return cards;
}

std::vector<ModelCard> AdapterCardsOf(const ModelContext& model) {
  std::vector<ModelCard> cards;
  Adapters* const adapters = model.engine->adapters();
  if (adapters == nullptr) return cards;
  for (const AdapterSource& adapter : adapters->List()) {
    ModelCard& card = cards.emplace_back(CardOf(model));
    card.name = adapter.name;
    card.root = adapter.path.string();
    card.parent = model.IsBaseName(adapter.base) ? adapter.base : model.name();
  }
  return cards;
}

void AppendModelCard(std::string& out, const ModelCard& card, ApiDialect dialect,
                     bool for_anthropic) {
  out += R"({"id":)";
  json::AppendString(out, card.name);
  out += fmt::format(R"(,"object":"model","created":{},"owned_by":"{}")", card.created,
                     OwnerName(dialect));
  if (dialect == ApiDialect::kTrtllm) {
    out += ClientFields(card, for_anthropic);
    return;
  }
  out += R"(,"root":)";
  json::AppendString(out, card.root);
  out += R"(,"parent":)";
  if (card.parent) {
    json::AppendString(out, *card.parent);
  } else {
    out += "null";
  }
  out += fmt::format(
      R"(,"max_model_len":{},"permission":[{{"id":"modelperm-{}","object":"model_permission","created":{},)"
      R"("allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,)"
      R"("allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}}])",
      card.max_model_len ? std::to_string(*card.max_model_len) : "null", RandomHex(16),
      card.created);
  out += ClientFields(card, for_anthropic);
}

std::string ModelList(const std::vector<ModelCard>& cards, ApiDialect dialect, bool for_anthropic) {
  std::string body = R"({"object":"list","data":[)";
  for (const ModelCard& card : cards) {
    if (&card != cards.data()) body.push_back(',');
    AppendModelCard(body, card, dialect, for_anthropic);
  }
  body.push_back(']');
  if (for_anthropic && !cards.empty()) {  // Anthropic's client reads the list in pages
    body += R"(,"has_more":false,"first_id":)";
    json::AppendString(body, cards.front().name);
    body += R"(,"last_id":)";
    json::AppendString(body, cards.back().name);
  }
  return body + "}";
}

}  // namespace sluice
