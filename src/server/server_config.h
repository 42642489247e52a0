// The settings of the HTTP server, resolved from options; fixed once it runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/media_config.h"

namespace sluice {

// Which server's API is imitated where they differ. kVllm: `vllm serve`; kTrtllm: `trtllm-serve`;
// kSluice: `vllm serve`, plus a few routes that it does not have.
enum class ApiDialect { kSluice, kVllm, kTrtllm };

// TLS of the HTTP server. Without a certificate it speaks plain HTTP.
struct TlsConfig {
  enum class ClientCertificates { kNone, kOptional, kRequired };

  std::string certificate_file;  // PEM, followed by those of its issuers
  std::string key_file;          // PEM; empty: the key is in certificate_file
  // Issuers of the certificates that clients may show; empty only with kNone.
  std::string client_ca_file;
  ClientCertificates client_certificates = ClientCertificates::kNone;
  std::string ciphers;  // of TLS 1.2, in OpenSSL's form; empty: those with forward secrecy and AEAD
  bool refresh = false;  // read the files again when they change

  bool enabled() const { return !certificate_file.empty(); }
};

struct ServerConfig {
  ApiDialect dialect = ApiDialect::kSluice;
  std::string host = "0.0.0.0";
  uint16_t port = 8000;  // 0: any free port, see Server::port()
  std::string uds;       // a unix socket, in place of host and port
  TlsConfig tls;
  bool protect_all = false;  // open routes need a key too, except probes
  // Without either, there is no authentication. Once the server is created, only ApiKeys holds the
  // keys.
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool needs_key() const { return !api_keys.empty() || !api_key_file.empty(); }
  // Answers show the first name; if empty, the model argument.
  std::vector<std::string> served_model_names;
  std::string model_argument;  // as the user gave it ("root" in /v1/models)
  std::string root_path;       // a proxy's prefix; paths with and without it are answered

  // CORS, as vllm serve: pages of other origins may call only if they are named here.
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  bool allow_credentials = false;

  // Limits.
  uint64_t max_body_bytes = uint64_t{64} << 20;
  // See RequestMemory. Applies until the engine's plan sets another value: enough to answer that
  // the model is being loaded.
  uint64_t request_memory_bytes = uint64_t{64} << 20;
  uint32_t max_header_bytes = 1 << 20;
  int max_connections = 4096;
  int max_pending_requests = 4096;  // accepted and not finished; more are answered 503
  double keep_alive_seconds = 75;
  bool listen_when_ready = false;      // connections are refused while the model loads
  double header_timeout_seconds = 30;  // from the first byte of a request to the end of its head
  double body_timeout_seconds = 120;
  double write_timeout_seconds = 300;  // a client that reads nothing for that long is dropped
  // Maximum bytes of an answer that is kept as a whole, not streamed; a larger one fails.
  uint64_t max_answer_bytes = uint64_t{512} << 20;
  uint64_t response_store_bytes = uint64_t{256} << 20;  // of stored responses
  std::string response_store;                           // folder that also stores them; empty: none
  int io_threads = 1;
  int worker_threads = 2;  // rendering, encoding, detokenizing

  // Answers.
  std::string chat_template;                          // path or text; empty: the model's own
  std::string chat_template_content_format = "auto";  // auto | string | openai
  std::string default_chat_template_kwargs;           // a JSON object or empty
  // Renames reasoning efforts for the template: name in requests to name for the template.
  std::map<std::string, std::string> reasoning_efforts;
  bool trust_request_chat_template = false;
  std::string response_role = "assistant";
  int max_logprobs = 20;
  std::string generation_config = "auto";  // auto: the model's defaults; vllm: none
  std::string override_generation_config;  // a JSON object or empty
  bool return_tokens_as_token_ids = false;
  bool enable_prompt_tokens_details = false;
  bool enable_force_include_usage = false;
  bool enable_request_id_headers = false;
  std::string simulated;  // EngineInfo::simulated, which answers say; "": not simulated
  double simulate_speed = 1;
  bool enable_server_load_tracking = false;
  bool enable_tokenizer_info_endpoint = false;
  bool enable_scale_out = false;  // /inference/v1/generate
  // Whether trainers may send tensors (--weight-transfer-config with the backend http), where they
  // are kept ("": the system's temporary folder), and their largest total size (0: twice the bytes
  // of the weights in use).
  bool takes_weight_uploads = false;
  std::string weight_upload_folder;
  uint64_t max_weight_upload_bytes = 0;
  bool enable_prompt_embeds = false;  // prompts of completions may be embeddings
  bool enable_docs = true;            // /docs, /redoc and /openapi.json
  bool enable_web = true;             // the page at /
  bool runtime_lora = false;          // /v1/load_lora_adapter and /v1/unload_lora_adapter
  // A folder of adapters that requests may name; empty: none. Only with `runtime_lora`.
  std::string lora_resolver_folder;
  bool dev_mode = false;  // VLLM_SERVER_DEV_MODE: /server_info, /pause, /reset_prefix_cache, ...
  bool enable_sleep_mode = false;      // /sleep may give memory back
  double sleep_idle_seconds = 0;       // idle time after which the model sleeps; 0: never
  bool refuses_while_asleep = false;   // requests get 503 instead of waiting
  bool enable_weight_updates = false;  // /start_weight_update and what belongs to it
  bool enable_response_store = true;   // /v1/responses stores responses
  bool enable_per_request_metrics = false;
  double sse_keep_alive_seconds = 0;  // between comments in an idle stream; 0: none
  // raw_logprobs | processed_logprobs | raw_logits | processed_logits
  std::string logprobs_mode = "raw_logprobs";
  bool json_without_whitespace = false;     // in constrained answers, between the parts of JSON
  bool constrain_reasoning = false;         // constraints apply to reasoning, too
  std::string fingerprint_mode = "full";    // of system_fingerprint: full | hash | custom | none
  std::string fingerprint_value;            // of mode custom
  int stream_interval = 1;                  // tokens in one event of a stream
  bool skip_model_name_validation = false;  // any "model" is taken
  bool enable_auto_tool_choice = false;     // vLLM's API: the model may decide to call tools
  std::string tool_call_parser;             // "" for none; "auto": chosen by the chat template
  std::string tool_strict_level = "auto";   // auto | function | parameter
  bool exclude_tools_when_tool_choice_none = false;  // the template does not get them
  std::string reasoning_parser;                      // "" for none
  bool enable_iteration_stats = false;               // trtllm-serve: GET /metrics lists every step

  MediaConfig media;  // images of requests

  // Limits of each client (ClientIdentity); 0: none.
  int64_t limit_requests_per_minute = 0;
  int64_t limit_tokens_per_minute = 0;
  int64_t limit_concurrent_requests = 0;

  // Limits of one request.
  int max_stop_strings = 4;
  int max_completion_prompts = 1024;
  int max_n = 16384;
  int max_bad_words = 128;

  // Logs.
  bool disable_access_log = false;
  std::vector<std::string> quiet_access_paths;  // not in the access log
  double log_stats_seconds = 10;                // between two statistics lines; 0: none
  bool log_requests = false;
  bool log_outputs = false;     // with log_requests: answers too
  int64_t max_log_length = -1;  // characters of a prompt or answer in the log; -1: all
  bool disable_log_stats = false;
  bool aggregate_engine_logging = false;  // one statistics line for all engines
  bool priority_scheduling = false;       // the engine's policy takes priorities into account

  // Collector that spans of requests are sent to (ReadSpanExporterSettings); empty: none.
  std::string otlp_traces_endpoint;

  // Options of the engine that /metrics shows.
  bool enable_prefix_caching = true;
  std::optional<double> memory_utilization;
  std::optional<int64_t> num_blocks_override;

  std::string version;  // of /version and system_fingerprint
};

}  // namespace sluice
