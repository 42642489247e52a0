// Cards of models, as GET /v1/models lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/common/model_context.h"
#include "server/server_config.h"

namespace sluice {

// A model, or an adapter of one.
struct ModelCard {
  std::string name;
  std::string root;                      // as the user gave it; for an adapter: its folder
  std::optional<std::string> parent;     // for adapters
  std::optional<int64_t> max_model_len;  // for models, if known
  int64_t created = 0;                   // Unix time
  bool has_chat = false;
  bool calls_tools = false;
  std::string more;  // further members: `,"key":value`
};

// The cards of the model's names.
std::vector<ModelCard> CardsOf(const ModelContext& model);
// The cards of its adapters.
std::vector<ModelCard> AdapterCardsOf(const ModelContext& model);

// `for_anthropic`: in the shape of Anthropic's API, with another "type".
void AppendModelCard(std::string& out, const ModelCard& card, ApiDialect dialect,
                     bool for_anthropic);
// The body of GET /v1/models.
std::string ModelList(const std::vector<ModelCard>& cards, ApiDialect dialect, bool for_anthropic);

}  // namespace sluice
