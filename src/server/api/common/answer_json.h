// Parts of JSON and of streams that the writers of several dialects share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/api/common/answer_event.h"

namespace sluice {

// An SSE comment, which clients skip. It prevents proxies from closing an idle stream.
inline constexpr std::string_view kKeepAliveEvent = ": keep-alive\n\n";

// Appends `"finish_reason":…,"stop_reason":…`; both are null while the choice is unfinished.
void AppendFinish(std::string& out, const std::optional<FinishEvent>& finish);
void AppendTokenIds(std::string& out, std::span<const int32_t> ids);
// Appends the list, or null if not `shown`.
void AppendTokenIds(std::string& out, std::span<const int32_t> ids, bool shown);
void AppendString(std::string& out, std::string_view text, bool shown);

// Appends `[{"id":…,"type":"function","function":{"name":…,"arguments":…}},…]`. `pieces`: in a
// stream, adds the call's index; only the first piece of a call has id, type and name.
void AppendToolCalls(std::string& out, std::span<const ToolCallEvent> calls, bool pieces);
// Appends `,"completion_tokens_details":…`.
void AppendCompletionDetails(std::string& out, const UsageEvent& usage);
// Appends `,"receipt":…` if there is a receipt.
void AppendReceipt(std::string& out, const UsageEvent& usage);

// Appends `{"prompt_tokens":…,"total_tokens":…,"completion_tokens":…` without the closing brace.
void AppendUsage(std::string& out, int64_t prompt_tokens, int64_t completion_tokens);

}  // namespace sluice
