// The settings of the HTTP server, resolved from options. They do not change while it runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/media_config.h"

namespace sluice {

// The server whose API is imitated where the APIs differ. kVllm: `vllm serve`; kTrtllm:
// `trtllm-serve`; kSluice: `vllm serve` plus a few routes that it does not have.
enum class ApiDialect { kSluice, kVllm, kTrtllm };

// TLS settings. Without a certificate the server uses plain HTTP.
struct TlsConfig {
  enum class ClientCertificates { kNone, kOptional, kRequired };

  std::string certificate_file;  // PEM; the issuers' certificates follow in the same file
  std::string key_file;          // PEM; empty: the key is in certificate_file
  // Issuers of the certificates that clients may present. Empty only with kNone.
  std::string client_ca_file;
  ClientCertificates client_certificates = ClientCertificates::kNone;
  std::string ciphers;   // ciphers of TLS 1.2 in OpenSSL's form; empty: ciphers with forward
                         // secrecy and AEAD
  bool refresh = false;  // whether to read the files again when they change

  bool enabled() const { return !certificate_file.empty(); }
};

struct ServerConfig {
  ApiDialect dialect = ApiDialect::kSluice;
  std::string host = "0.0.0.0";
  uint16_t port = 8000;  // 0: any free port, see Server::port()
  std::string uds;       // path of a unix socket, used instead of host and port
  TlsConfig tls;
  bool protect_all = false;  // whether open routes other than health probes also need a key
  // If both are empty, there is no authentication. Once the server is created, only ApiKeys holds
  // the keys.
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool needs_key() const { return !api_keys.empty() || !api_key_file.empty(); }
  // Answers show the first name; if empty, the model argument.
  std::vector<std::string> served_model_names;
  std::string model_argument;  // the model as the user gave it ("root" in /v1/models)
  std::string root_path;       // prefix that a proxy adds; paths with and without it are answered

  // CORS, as in `vllm serve`: pages of other origins may call only if this list contains their
  // origin.
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  bool allow_credentials = false;

  // --- Limits.
  uint64_t max_body_bytes = uint64_t{64} << 20;
  // See RequestMemory. Applies until the engine's plan sets another value. Enough to answer that
  // the model is being loaded.
  uint64_t request_memory_bytes = uint64_t{64} << 20;
  uint32_t max_header_bytes = 1 << 20;
  int max_connections = 4096;
  int max_pending_requests = 4096;  // maximum of accepted, unfinished requests; more are answered
                                    // with 503
  double keep_alive_seconds = 75;
  bool listen_when_ready = false;      // whether connections are refused while the model loads
  double header_timeout_seconds = 30;  // time limit from the first byte of a request to the end of
                                       // its head
  double body_timeout_seconds = 120;
  double write_timeout_seconds = 300;  // a client that reads nothing for this long is disconnected
  // Maximum bytes of an answer that is kept as a whole instead of streamed. A larger one fails.
  uint64_t max_answer_bytes = uint64_t{512} << 20;
  uint64_t response_store_bytes = uint64_t{256} << 20;  // memory for stored responses
  std::string response_store;                           // folder in which responses are also
                                                        // stored; empty: none
  int io_threads = 1;
  int worker_threads = 2;  // threads for rendering, encoding and detokenizing

  // --- Answers.
  std::string chat_template;                          // path or text; empty: the model's own
  std::string tokenizer_mode = "auto";                // may name a built-in chat template
  std::string chat_template_content_format = "auto";  // auto | string | openai
  std::string default_chat_template_kwargs;           // a JSON object, or empty
  // Renames reasoning efforts for the template: from the name in requests to the name for the
  // template.
  std::map<std::string, std::string> reasoning_efforts;
  bool trust_request_chat_template = false;
  std::string response_role = "assistant";
  int max_logprobs = 20;
  std::string generation_config = "auto";  // auto: the model's defaults; vllm: none
  std::string override_generation_config;  // a JSON object, or empty
  bool return_tokens_as_token_ids = false;
  bool enable_prompt_tokens_details = false;
  bool enable_force_include_usage = false;
  bool enable_request_id_headers = false;
  std::string simulated;  // EngineInfo::simulated, shown in answers; "": not simulated
  double simulate_speed = 1;
  bool enable_server_load_tracking = false;
  bool enable_tokenizer_info_endpoint = false;
  bool enable_scale_out = false;  // enables /inference/v1/generate
  // Whether trainers may send tensors (--weight-transfer-config with the backend http). The folder
  // for these tensors ("": the system's temporary folder), and their maximum total size (0: twice
  // the bytes of the weights in use).
  bool takes_weight_uploads = false;
  std::string weight_upload_folder;
  uint64_t max_weight_upload_bytes = 0;
  bool enable_prompt_embeds = false;  // whether prompts of completions may be embeddings
  bool enable_docs = true;            // enables /docs, /redoc and /openapi.json
  bool enable_web = true;             // enables the page at /
  bool runtime_lora = false;          // enables /v1/load_lora_adapter and /v1/unload_lora_adapter
  // A folder with adapters that requests may name; empty: none. Only with `runtime_lora`.
  std::string lora_resolver_folder;
  bool dev_mode = false;               // VLLM_SERVER_DEV_MODE: enables /server_info, /pause,
                                       // /reset_prefix_cache, ...
  bool enable_sleep_mode = false;      // whether /sleep may free memory
  double sleep_idle_seconds = 0;       // idle time after which the model sleeps; 0: never
  bool refuses_while_asleep = false;   // whether requests get 503 instead of waiting for the model
                                       // to wake
  bool enable_weight_updates = false;  // enables /start_weight_update and the routes that belong to
                                       // it
  bool enable_response_store = true;   // whether /v1/responses stores responses
  bool enable_per_request_metrics = false;
  double sse_keep_alive_seconds = 0;  // interval between comments in an idle stream; 0: none
  // raw_logprobs | processed_logprobs | raw_logits | processed_logits
  std::string logprobs_mode = "raw_logprobs";
  bool json_without_whitespace = false;     // whether constrained answers have no white space
                                            // between the parts of JSON
  bool constrain_reasoning = false;         // whether constraints also apply to reasoning
  std::string fingerprint_mode = "full";    // kind of system_fingerprint: full | hash | custom |
                                            // none
  std::string fingerprint_value;            // the fingerprint in mode custom
  int stream_interval = 1;                  // number of tokens per event of a stream
  bool skip_model_name_validation = false;  // whether any "model" is accepted
  bool enable_auto_tool_choice = false;  // whether the model may decide to call tools (as in vLLM)
  std::string tool_call_parser;          // "": none; "auto": chosen by the chat template
  std::string tool_strict_level = "auto";  // auto | function | parameter
  // Whether tools are hidden from the template if tool_choice is "none".
  bool exclude_tools_when_tool_choice_none = false;
  std::string reasoning_parser;         // "": none
  bool enable_iteration_stats = false;  // whether GET /metrics lists every step, as in trtllm-serve

  MediaConfig media;  // settings for the images of requests

  // Limits for each client (ClientIdentity); 0: no limit.
  int64_t limit_requests_per_minute = 0;
  int64_t limit_tokens_per_minute = 0;
  int64_t limit_concurrent_requests = 0;

  // Limits for one request.
  int max_stop_strings = 4;
  int max_completion_prompts = 1024;
  int max_n = 16384;
  int max_bad_words = 128;

  // --- Logs.
  bool disable_access_log = false;
  std::vector<std::string> quiet_access_paths;  // requests for these paths are not in the access
                                                // log
  double log_stats_seconds = 10;                // interval between two lines of statistics; 0: none
  bool log_requests = false;
  bool log_outputs = false;     // whether answers are also logged; only with log_requests
  int64_t max_log_length = -1;  // maximum characters of a prompt or answer in the log; -1: all
  bool disable_log_stats = false;
  bool aggregate_engine_logging = false;  // whether one line of statistics covers all engines
  bool priority_scheduling = false;       // whether the engine's policy considers priorities

  // The collector to which the spans of requests are sent (ReadSpanExporterSettings); empty: none.
  std::string otlp_traces_endpoint;

  // Options of the engine that /metrics shows.
  bool enable_prefix_caching = true;
  std::optional<double> memory_utilization;
  std::optional<int64_t> num_blocks_override;

  std::string version;  // shown in /version and system_fingerprint
};

}  // namespace sluice
