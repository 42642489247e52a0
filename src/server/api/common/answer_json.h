// Pieces of JSON and of streams shared by the writers of several dialects.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/api/common/answer_event.h"

namespace sluice {

// An SSE comment, which clients skip; prevents proxies from closing an idle stream.
inline constexpr std::string_view kKeepAliveEvent = ": keep-alive\n\n";

// `"finish_reason":…,"stop_reason":…`; both null while the choice is unfinished.
void AppendFinish(std::string& out, const std::optional<FinishEvent>& finish);
void AppendTokenIds(std::string& out, std::span<const int32_t> ids);
// The list, or null if not `shown`.
void AppendTokenIds(std::string& out, std::span<const int32_t> ids, bool shown);
void AppendString(std::string& out, std::string_view text, bool shown);

// `[{"id":…,"type":"function","function":{"name":…,"arguments":…}},…]`. `pieces`: in a stream, with
// the index of the call; only the first piece of a call has id, type and name.
void AppendToolCalls(std::string& out, std::span<const ToolCallEvent> calls, bool pieces);
// `,"completion_tokens_details":…`.
void AppendCompletionDetails(std::string& out, const UsageEvent& usage);
// Appends `,"receipt":…`, if there is one.
void AppendReceipt(std::string& out, const UsageEvent& usage);

// `{"prompt_tokens":…,"total_tokens":…,"completion_tokens":…` without the closing brace.
void AppendUsage(std::string& out, int64_t prompt_tokens, int64_t completion_tokens);

}  // namespace sluice
