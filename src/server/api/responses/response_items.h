// The items that make up a client's input to /v1/responses, and their conversion to chat messages.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/api/common/field_reader.h"

namespace sluice {

// Returns a new unique id for a response or an item. It begins with `prefix`.
std::string NewResponseId(std::string_view prefix);

// Checks the types in `input`, a text or a list of items. The first error is located at "input".
void CheckInput(FieldReader& reader, const json::Value& input);

// Returns `input` as a list of items, each with a type and an id. REQUIRES: CheckInput() found no
// error.
json::Value::Array InputItems(const json::Value& input);

// Returns the item of a stored response that an item_reference names; nullopt if there is none.
using FindItem = std::function<std::optional<json::Value>(const std::string& id)>;

// Appends the messages for `items`, in the shape of chat requests. Consecutive items of the
// assistant (reasoning, text, calls) become one message. Errors: 400 for a reference to an unknown
// item, and for items that only another server could have created.
ApiStatus AppendMessages(const json::Value::Array& items, const FindItem& find_item,
                         json::Value::Array& messages);

// Whether the last of `items` is an unfinished message of the assistant, which the answer
// continues.
bool EndsUnfinished(const json::Value::Array& items);

}  // namespace sluice
