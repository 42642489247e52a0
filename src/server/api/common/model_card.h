// Model cards, as GET /v1/models lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/common/model_context.h"
#include "server/server_config.h"

namespace sluice {

// The card of a model, or of an adapter.
struct ModelCard {
  std::string name;
  std::string root;                      // the model as the user named it; for an adapter, its
                                         // folder
  std::optional<std::string> parent;     // for adapters: the model's name
  std::optional<int64_t> max_model_len;  // for models, if known
  int64_t created = 0;                   // Unix time in seconds
  bool has_chat = false;
  bool calls_tools = false;
  std::string more;  // further members: `,"key":value`
};

// Returns the cards for all names of the model.
std::vector<ModelCard> CardsOf(const ModelContext& model);
// Returns the cards of the model's adapters.
std::vector<ModelCard> AdapterCardsOf(const ModelContext& model);

// `for_anthropic`: uses the shape of Anthropic's API, whose "type" differs.
void AppendModelCard(std::string& out, const ModelCard& card, ApiDialect dialect,
                     bool for_anthropic);
// Returns the body of GET /v1/models.
std::string ModelList(const std::vector<ModelCard>& cards, ApiDialect dialect, bool for_anthropic);

}  // namespace sluice
