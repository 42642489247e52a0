// POST /v1/responses, and the routes of stored responses.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_count.h"
#include "base/log.h"
#include "server/api/answer/answer_plan.h"
#include "server/api/answer/parsing_plan.h"
#include "server/api/common/api_error.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/query.h"
#include "server/api/common/request_body.h"
#include "server/api/context/authorization.h"
#include "server/api/context/route_table.h"
#include "server/api/guard/pending_writer.h"
#include "server/api/responses/background_response.h"
#include "server/api/responses/response_items.h"
#include "server/api/responses/responses_request.h"
#include "server/api/responses/responses_writer.h"
#include "server/api/store/response_events.h"

namespace sluice {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses/";

// Returns the owner of a response that a request stores. Only requests with the same owner may
// fetch the response. Each API key is an owner. All requests without a key, which only models
// without keys accept, have the same owner. If the server needs no key, all requests have the same
// owner.
std::string OwnerOf(const RouteCall& call) {
  if (!call.api.config.needs_key()) return "";
  const std::string_view key = PresentedKey(call.request, *call.api.keys);
  return key.empty() ? "" : call.api.responses->OwnerOf(key);
}

ApiResult<std::shared_ptr<StoredResponse>> FindResponse(const RouteCall& call,
                                                        const std::string& id) {
  std::shared_ptr<StoredResponse> found = call.api.responses->Find(id, OwnerOf(call));
  if (found != nullptr) return found;
  return InvalidRequest(404, fmt::format("Response with id '{}' not found.", id.substr(0, 100)),
                        "response_id");
}

// Parses a stored text, after reserving the memory that parsing takes.
ApiResult<json::Value> ParseStored(const RouteCall& call, const std::string& text) {
  const auto& lease = call.request.memory;
  const size_t needed = json::ParseMemory(json::Measure(text), text.size()) + text.size();
  API_RETURN_IF_ERROR(ReserveMemory(lease, (lease == nullptr ? 0 : lease->bytes()) + needed));
  Result<json::Value> value = json::Parse(text);
  if (!value) return tl::unexpected<ApiError>(FromError(value.error()));
  return *std::move(value);
}

// Returns the messages of the conversation that ends with `response`, without its reasoning,
// because a model sees reasoning only during its own turn.
ApiResult<json::Value::Array> Conversation(const RouteCall& call, const StoredResponse& response) {
  API_ASSIGN_OR_RETURN(json::Value messages, ParseStored(call, response.messages()));
  API_ASSIGN_OR_RETURN(const json::Value body, ParseStored(call, response.body()));
  json::Value::Array output;
  for (const json::Value& item : body.Find("output")->as_array()) {
    if (*item.Find("type") != json::Value("reasoning")) output.push_back(item);
  }
  const FindItem no_references = [](const std::string&) { return std::nullopt; };
  API_RETURN_IF_ERROR(AppendMessages(output, no_references, messages.as_array()));
  return std::move(messages.as_array());
}

// Returns the item of a stored response that an item_reference names.
std::optional<json::Value> FindItemOf(const RouteCall& call, const std::string& id) {
  const auto response = call.api.responses->FindByItem(id, OwnerOf(call));
  if (response == nullptr) return std::nullopt;
  const ApiResult<json::Value> body = ParseStored(call, response->body());
  if (!body) return std::nullopt;
  for (const json::Value& item : body->Find("output")->as_array()) {
    if (*item.Find("id") == json::Value(id)) return item;
  }
  return std::nullopt;
}

// Reserves a response's id during its lifetime.
class TakenId {
 public:
  TakenId(std::shared_ptr<ResponseStore> store, std::string id)
      : store_(std::move(store)), id_(std::move(id)) {}
  ~TakenId() { store_->ReleaseId(id_); }
  TakenId(const TakenId&) = delete;
  TakenId& operator=(const TakenId&) = delete;

 private:
  const std::shared_ptr<ResponseStore> store_;
  const std::string id_;
};

tl::unexpected<ApiError> IdIsTaken() {
  return BadParameter(
      "a response with this id is still being generated, or belongs to another client; omit it to "
      "get a new id",
      "request_id");
}

ApiResult<std::shared_ptr<const TakenId>> TakeId(const RouteCall& call, const std::string& id) {
  if (!call.api.responses->TakeId(id, OwnerOf(call))) return IdIsTaken();
  return std::make_shared<const TakenId>(call.api.responses, id);
}

// Returns the error message for a response that cannot be stored.
std::string NoRoomFor(const StoredResponse& response, const ResponseStore& store) {
  return fmt::format(
      "it needs {} bytes, and the store of responses has {} (--response-store-bytes), a part of "
      "which belongs to other clients",
      response.bytes(), store.max_bytes());
}

// The data of a response that is stored before the answer is generated.
struct Storing {
  StoredResponse::Content content;
  bool wanted = false;
};

ResponsesAnswer MakeAnswer(const RouteCall& call, ResponseFrame frame, NamespacedTools tools,
                           Storing storing, std::shared_ptr<const TakenId> id,
                           const std::shared_ptr<StoredResponse>& background) {
  ResponsesAnswer answer{std::move(frame), std::move(tools), nullptr};
  if (background != nullptr) {
    answer.keep = [background, id = std::move(id)](const std::string& body,
                                                   std::vector<std::string> items, bool is_over) {
      background->SetBody(body, std::move(items), is_over);
    };
    return answer;
  }
  auto content = std::make_shared<StoredResponse::Content>(std::move(storing.content));
  answer.keep = [content, id = std::move(id), wanted = storing.wanted, store = call.api.responses](
                    const std::string& body, std::vector<std::string> items, bool is_over) {
    if (!is_over || !wanted) return;
    content->body = body;
    content->item_ids = std::move(items);
    const auto response = std::make_shared<StoredResponse>(std::move(*content), /*is_over=*/true);
    switch (store->Add(response)) {
      case ResponseStore::Added::kYes: break;
      case ResponseStore::Added::kNoRoom:
      case ResponseStore::Added::kTooLarge:
        LOG_WARNING("server", "response {} is not stored: {}", response->id(),
                    NoRoomFor(*response, *store));
        break;
      case ResponseStore::Added::kIdTaken:
        LOG_WARNING("server", "response {} is not stored: another one has its id", response->id());
        break;
    }
  };
  return answer;
}

// Answers immediately, with a queued response or with a stream of its events.
ApiStatus StartInBackground(const RouteCall& call, AnswerPlan plan, ResponsesRequest& request,
                            ResponseFrame frame, Storing storing, std::shared_ptr<const TakenId> id,
                            std::string_view logged) {
  ApiContext& api = call.api;
  const std::string body = frame.Body("queued", "", "null");
  storing.content.body = body;
  auto response = std::make_shared<StoredResponse>(std::move(storing.content), /*is_over=*/false);
  // The response counts as a separate pending request and takes over the memory, because this
  // request ends immediately.
  ++*api.pending;
  if (call.ticket != nullptr) call.ticket->Stay();
  auto client = std::make_shared<PendingWriter>(MakeBackgroundClient(response, api.responses),
                                                api.pending, call.ticket);
  HttpRequest own_request = call.request;
  if (own_request.memory != nullptr)
    own_request.memory = std::make_shared<MemoryLease>(std::move(*call.request.memory));
  const RouteCall own_call{api,    call.route, own_request, call.path,
                           client, call.model, call.ticket};
  plan.options.stream = plan.generation.stream = true;
  const auto make_writer = [&](AnswerOptions options, std::shared_ptr<ResponseWriter> writer) {
    return MakeResponsesWriter(
        MakeAnswer(call, std::move(frame), std::move(request.namespaced_tools), {}, std::move(id),
                   response),
        std::move(options), std::move(writer));
  };
  API_RETURN_IF_ERROR(
      StartAnswer(own_call, make_writer, std::move(plan), request.chat.sampling, logged));
  // Stored after all checks, so that a refused request does not evict other responses.
  const ResponseStore::Added added = api.responses->Add(response);
  if (added != ResponseStore::Added::kYes) response->End("cancelled", "");
  switch (added) {
    case ResponseStore::Added::kYes: break;
    case ResponseStore::Added::kTooLarge:
      return InvalidRequest(
          413,
          fmt::format("A response in the background is stored, and this one needs {} bytes, more "
                      "than the {} of --response-store-bytes; shorten the input, omit "
                      "`background`, or start the server with a larger store.",
                      response->bytes(), api.responses->max_bytes()),
          "background");
    case ResponseStore::Added::kNoRoom:
      return tl::unexpected(ServiceUnavailable(
          fmt::format("A response in the background is stored: {}; try again when running ones "
                      "have ended, or start the server with a larger store.",
                      NoRoomFor(*response, *api.responses))));
    case ResponseStore::Added::kIdTaken: return IdIsTaken();
  }
  if (request.chat.sampling.stream) {
    FollowResponse(response, 0, call.client);
  } else {
    call.client->Send(JsonResponse(body));
  }
  return {};
}

// As in vLLM, calls remain text if the server is not set up to parse them.
bool ParsesCalls(const ToolFields& tools, const RouteCall& call) {
  return call.model->tool_parser != nullptr &&
         CheckToolSupport(tools, call.api.config, call.model->takes_tools());
}

ApiStatus CreateResponse(const RouteCall& call, const json::Value& body) {
  const ServerConfig& config = call.api.config;
  API_ASSIGN_OR_RETURN(ResponsesRequest request, ReadResponsesRequest(body, config));
  const SamplingFields& fields = request.chat.sampling;
  ConversationFields& conversation = request.chat.conversation;
  API_ASSIGN_OR_RETURN(AnswerPlan plan, PlanAnswer(call, "", fields));
  // As in vLLM, the id is not taken from a header.
  plan.options.id = plan.generation.id = *fields.request_id;
  API_ASSIGN_OR_RETURN(std::shared_ptr<const TakenId> id, TakeId(call, plan.options.id));
  plan.generation.splits_logprobs = plan.options.logprobs.has_value();
  Storing storing;
  storing.wanted = request.store && config.enable_response_store;
  if (request.background && !storing.wanted) {
    return InvalidRequest(
        400,
        "This server stores no responses and therefore has no background mode; start it "
        "with --enable-response-store or VLLM_ENABLE_RESPONSES_API_STORE=1.",
        "background");
  }

  if (!ParsesCalls(request.chat.tools, call)) request.chat.tools.choice = ToolChoice::kNone;
  API_RETURN_IF_ERROR(
      PlanParsing(request.chat.tools, conversation, request.chat.include_reasoning, plan));

  json::Value::Array messages;
  if (request.previous_response_id) {
    API_ASSIGN_OR_RETURN(const auto previous, FindResponse(call, *request.previous_response_id));
    if (!previous->is_over()) {
      return BadParameter("the previous response is still being generated", "previous_response_id");
    }
    API_ASSIGN_OR_RETURN(messages, Conversation(call, *previous));
  }
  const FindItem find_item = [&call](const std::string& id) { return FindItemOf(call, id); };
  API_RETURN_IF_ERROR(AppendMessages(request.items, find_item, messages));
  if (storing.wanted) {
    storing.content.id = plan.options.id;
    storing.content.owner = OwnerOf(call);
    storing.content.messages = json::Write(json::Value(messages));
    storing.content.input_items = json::Write(json::Value(request.items));
  }
  if (!request.instructions.empty()) {
    messages.insert(messages.begin(), json::Value(json::Value::Object{
                                          {"role", "system"}, {"content", request.instructions}}));
  }
  conversation.messages = json::Value(std::move(messages));

  AnswerOptions::Prompt shown;
  conversation.own_places = true;
  API_ASSIGN_OR_RETURN(RenderedConversation rendered,
                       RenderConversation(call, conversation, conversation.messages));
  const std::string logged = config.log_requests ? rendered.text : "";
  API_ASSIGN_OR_RETURN(Prompt prompt,
                       PromptFromConversation(std::move(rendered), /*add_special_tokens=*/false,
                                              fields, *call.model));
  API_RETURN_IF_ERROR(AddPrompt(plan, fields, std::move(prompt), std::move(shown)));
  ResponseFrame frame(plan.options.id, plan.options.created, plan.options.model_name(),
                      request.shown, plan.generation.sampling.front());
  plan.writer_bytes =
      frame.bytes() + storing.content.messages.size() + storing.content.input_items.size();
  for (const auto& [flat, tool] : request.namespaced_tools)
    plan.writer_bytes += sizeof tool + 2 * flat.size();
  if (request.background) {
    return StartInBackground(call, std::move(plan), request, std::move(frame), std::move(storing),
                             std::move(id), logged);
  }
  const auto make_writer = [&](AnswerOptions options, std::shared_ptr<ResponseWriter> client) {
    return MakeResponsesWriter(
        MakeAnswer(call, std::move(frame), std::move(request.namespaced_tools), std::move(storing),
                   std::move(id), nullptr),
        std::move(options), std::move(client));
  };
  return StartAnswer(call, make_writer, std::move(plan), fields, logged);
}

// Returns the id in the path, which ends with `suffix`.
std::string IdOf(const RouteCall& call, std::string_view suffix = "") {
  std::string_view id = call.path.substr(kResponsesPath.size());
  id.remove_suffix(suffix.size());
  return std::string(id);
}

ApiStatus GetResponse(const RouteCall& call) {
  const std::string id = IdOf(call);
  if (id.find('/') != std::string::npos) {
    call.client->Send(DetailResponse(404, "Not Found"));
    return {};
  }
  json::Value query{json::Value::Object{}};
  for (const char* name : {"stream", "starting_after"}) {
    if (const auto value = QueryValue(call.request, name)) query.Set(name, *value);
  }
  std::vector<FieldError> errors;
  FieldReader reader(query, "query", &errors);
  bool stream = false;
  int64_t after = -1;
  reader.Read("stream", stream);
  reader.Read("starting_after", after, {.min = 0});
  if (!errors.empty()) return ValidationFailed(errors);
  API_ASSIGN_OR_RETURN(const std::shared_ptr<StoredResponse> response, FindResponse(call, id));
  if (!stream) {
    call.client->Send(JsonResponse(response->body()));
  } else if (response->background()) {
    FollowResponse(response, static_cast<size_t>(after + 1), call.client);
  } else {
    API_ASSIGN_OR_RETURN(const json::Value body, ParseStored(call, response->body()));
    call.client->StartStream(EventStreamHead());
    ResponseEvents events([&](int64_t number, std::string_view event) {
      if (number > after) call.client->WriteChunk(event);
    });
    ReplayResponse(body, events);
    call.client->EndStream();
  }
  return {};
}

ApiStatus GetOrDelete(const RouteCall& call) {
  if (call.request.method == "GET") return GetResponse(call);
  const std::string id = IdOf(call);
  API_ASSIGN_OR_RETURN(const std::shared_ptr<StoredResponse> response, FindResponse(call, id));
  response->End("cancelled", "");
  call.api.responses->Remove(*response);
  std::string body = R"({"id":)";
  json::AppendString(body, id);
  call.client->Send(JsonResponse(body + R"(,"object":"response","deleted":true})"));
  return {};
}

ApiStatus CancelResponse(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const std::shared_ptr<StoredResponse> response,
                       FindResponse(call, IdOf(call, "/cancel")));
  if (!response->End("cancelled", "")) {
    return InvalidRequest(400,
                          response->background() ? "Cannot cancel a response that is over."
                                                 : "Cannot cancel a synchronous response.",
                          "response_id");
  }
  call.api.responses->Update(*response);
  call.client->Send(JsonResponse(response->body()));
  return {};
}

ApiStatus GetInputItems(const RouteCall& call) {
  constexpr int64_t kDefaultItems = 20, kMostItems = 100;
  API_ASSIGN_OR_RETURN(const std::string order,
                       QueryChoice(call.request, "order", {"desc", "asc"}));
  json::Value query{json::Value::Object{}};
  if (const auto value = QueryValue(call.request, "limit")) query.Set("limit", *value);
  std::vector<FieldError> errors;
  int64_t limit = kDefaultItems;
  FieldReader(query, "query", &errors).Read("limit", limit, {.min = 1, .max = kMostItems});
  if (!errors.empty()) return ValidationFailed(errors);
  API_ASSIGN_OR_RETURN(const std::shared_ptr<StoredResponse> response,
                       FindResponse(call, IdOf(call, "/input_items")));
  API_ASSIGN_OR_RETURN(json::Value items, ParseStored(call, response->input_items()));
  json::Value::Array& list = items.as_array();
  if (order == "desc") std::ranges::reverse(list);
  auto first = list.begin();
  if (const auto after = QueryValue(call.request, "after")) {
    const auto found = std::ranges::find_if(
        list, [&](const json::Value& item) { return *item.Find("id") == json::Value(*after); });
    if (found == list.end())
      return InvalidRequest(404, fmt::format("Item with id '{}' not found.", after->substr(0, 100)),
                            "after");
    first = std::next(found);
  }
  const bool has_more = list.end() - first > limit;
  const auto last = has_more ? first + limit : list.end();
  json::Value answer(
      json::Value::Object{{"object", "list"}, {"data", json::Value::Array(first, last)}});
  const bool is_empty = first == last;
  answer.Set("first_id", is_empty ? json::Value() : *first->Find("id"));
  answer.Set("last_id", is_empty ? json::Value() : *std::prev(last)->Find("id"));
  answer.Set("has_more", has_more);
  call.client->Send(JsonResponse(json::Write(answer)));
  return {};
}

}  // namespace

std::vector<Route> ResponsesRoutes() {
  constexpr std::string_view kOne = "/v1/responses/{response_id}";
  return {
      WithBody("/v1/responses", CreateResponse, "Answer text or a conversation of items.",
               "ResponsesRequest", "Response"),
      WithoutModel(OnWorker("/v1/responses/{response_id}/cancel", {"POST"}, RouteGate::kAlways,
                            CancelResponse, "End a response that is generated in the background.",
                            "Response")),
      WithoutModel(OnWorker("/v1/responses/{response_id}/input_items", {"GET"}, RouteGate::kNotVllm,
                            GetInputItems, "The items that a stored response answers.")),
      WithoutModel(OnWorker(kOne, {"GET", "DELETE"}, RouteGate::kNotVllm, GetOrDelete,
                            "A stored response, or its removal.")),
      WithoutModel(
          OnWorker(kOne, {"GET"}, RouteGate::kVllm, GetResponse, "A stored response.", "Response")),
  };
}

}  // namespace sluice
