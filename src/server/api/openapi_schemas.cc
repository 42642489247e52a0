// The schemas of bodies and answers. They name the fields that are read; others are ignored, and
// numbers and booleans may be written as strings, as vLLM accepts them.
#include "server/api/openapi.h"

namespace sluice {

std::string_view OpenApiSchemas() {
  return R"json({
 "Error": {
  "type": "object",
  "description": "From the API: an object `error` (flat under trtllm-serve, without `param` and `code` in the shape of Anthropic's API); from the layer below it: a `detail`.",
  "properties": {
   "error": {
    "anyOf": [
     {
      "type": "object",
      "required": ["message", "type"],
      "properties": {
       "message": {"type": "string"},
       "type": {"type": "string"},
       "param": {"type": ["string", "null"]},
       "code": {"type": "integer"}}},
     {"type": "string"}]},
   "detail": {"type": "string"}}},
 "Health": {
  "type": "object",
  "required": ["status"],
  "properties": {
   "status": {"enum": ["ok", "loading", "draining", "unhealthy"]},
   "reason": {"type": "string"},
   "downloaded_bytes": {"type": "integer"},
   "download_bytes": {"type": "integer"}}},
 "Readiness": {
  "type": "object",
  "required": ["status"],
  "properties": {
   "status": {"enum": ["ready", "loading", "downloading", "paused", "sleeping", "draining", "unhealthy"]},
   "reason": {"type": "string"},
   "downloaded_bytes": {"type": "integer"},
   "download_bytes": {"type": "integer"}}},
 "Version": {"type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}},
 "Load": {
  "type": "object",
  "required": ["server_load"],
  "properties": {"server_load": {"type": "integer"}}},
 "ModelCard": {
  "type": "object",
  "required": ["id", "object", "created", "owned_by"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "model"},
   "created": {"type": "integer"},
   "owned_by": {"type": "string"},
   "max_model_len": {"type": "integer"}}},
 "ModelList": {
  "type": "object",
  "required": ["object", "data"],
  "properties": {
   "object": {"const": "list"},
   "data": {"type": "array", "items": {"$ref": "#/components/schemas/ModelCard"}}}},
 "Message": {
  "type": "object",
  "required": ["role", "content"],
  "properties": {
   "role": {"type": "string"},
   "content": {
    "anyOf": [
     {"type": "string"},
     {
      "type": "array",
      "items": {
       "type": "object",
       "required": ["type", "text"],
       "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]},
   "name": {"type": "string"}}},
 "CompletionRequest": {
  "allOf": [
   {"$ref": "#/components/schemas/Sampling"},
   {
    "type": "object",
    "required": ["prompt"],
    "properties": {
     "prompt": {
      "anyOf": [
       {"type": "string", "minLength": 1},
       {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1024},
       {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
       {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        "minItems": 1,
        "maxItems": 1024}]},
     "logprobs": {"type": ["integer", "null"], "minimum": -1}}}]},
 "ChatRequest": {
  "allOf": [
   {"$ref": "#/components/schemas/Sampling"},
   {"$ref": "#/components/schemas/ChatOptions"},
   {
    "type": "object",
    "required": ["messages"],
    "properties": {
     "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}}}}]},
 "BatchChatRequest": {
  "allOf": [
   {"$ref": "#/components/schemas/Sampling"},
   {"$ref": "#/components/schemas/ChatOptions"},
   {
    "type": "object",
    "required": ["messages"],
    "properties": {
     "messages": {
      "type": "array",
      "minItems": 1,
      "items": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}}}}}]},
 "InvocationRequest": {
  "anyOf": [
   {"$ref": "#/components/schemas/ChatRequest"},
   {"$ref": "#/components/schemas/CompletionRequest"}]},
 "Usage": {
  "type": "object",
  "required": ["prompt_tokens", "total_tokens", "completion_tokens"],
  "properties": {
   "prompt_tokens": {"type": "integer"},
   "total_tokens": {"type": "integer"},
   "completion_tokens": {"type": "integer"}}},
 "Completion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "text_completion"},
   "created": {"type": "integer"},
   "model": {"type": "string"},
   "choices": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["index", "text", "finish_reason"],
     "properties": {
      "index": {"type": "integer"},
      "text": {"type": "string"},
      "logprobs": {"type": ["object", "null"]},
      "finish_reason": {"enum": ["stop", "length", "abort", "error", "repetition", null]}}}},
   "usage": {"$ref": "#/components/schemas/Usage"}}},
 "ChatCompletion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "chat.completion"},
   "created": {"type": "integer"},
   "model": {"type": "string"},
   "choices": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["index", "message", "finish_reason"],
     "properties": {
      "index": {"type": "integer"},
      "message": {
       "type": "object",
       "required": ["role", "content"],
       "properties": {"role": {"type": "string"}, "content": {"type": ["string", "null"]}}},
      "logprobs": {"type": ["object", "null"]},
      "finish_reason": {"enum": ["stop", "length", "abort", "error", "repetition", null]}}}},
   "usage": {"$ref": "#/components/schemas/Usage"}}},
 "MessagesConversation": {
  "type": "object",
  "required": ["model", "messages"],
  "properties": {
   "model": {"type": "string", "minLength": 1},
   "messages": {
    "type": "array",
    "minItems": 1,
    "items": {
     "type": "object",
     "required": ["role", "content"],
     "properties": {
      "role": {"enum": ["user", "assistant", "system"]},
      "content": {
       "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"$ref": "#/components/schemas/MessagesBlock"}}]}}}},
   "system": {
    "anyOf": [
     {"type": "string"},
     {
      "type": "array",
      "items": {
       "type": "object",
       "required": ["type", "text"],
       "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}},
     {"type": "null"}]},
   "tools": {
    "type": ["array", "null"],
    "items": {
     "type": "object",
     "required": ["name", "input_schema"],
     "properties": {
      "type": {"enum": ["custom", null]},
      "name": {"type": "string"},
      "description": {"type": ["string", "null"]},
      "input_schema": {"type": "object"},
      "strict": {"type": ["boolean", "null"]}}}},
   "tool_choice": {
    "type": ["object", "null"],
    "required": ["type"],
    "properties": {
     "type": {"enum": ["auto", "any", "tool", "none"]},
     "name": {"type": ["string", "null"]},
     "disable_parallel_tool_use": {"type": ["boolean", "null"]}}},
   "thinking": {
    "type": ["object", "null"],
    "required": ["type"],
    "properties": {
     "type": {"enum": ["enabled", "disabled", "adaptive"]},
     "budget_tokens": {"type": ["integer", "null"], "minimum": 1}}},
   "chat_template_kwargs": {"type": ["object", "null"]}}},
 "MessagesBlock": {
  "anyOf": [
   {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}}},
   {
    "type": "object",
    "required": ["type", "thinking"],
    "properties": {"type": {"const": "thinking"}, "thinking": {"type": "string"}}},
   {
    "type": "object",
    "required": ["type", "id", "name", "input"],
    "properties": {
     "type": {"const": "tool_use"},
     "id": {"type": "string"},
     "name": {"type": "string"},
     "input": {"type": "object"}}},
   {
    "type": "object",
    "required": ["type", "tool_use_id"],
    "properties": {
     "type": {"const": "tool_result"},
     "tool_use_id": {"type": "string"},
     "content": {
      "anyOf": [
       {"type": "string"},
       {
        "type": "array",
        "items": {
         "type": "object",
         "required": ["type", "text"],
         "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]}}}]},
 "MessagesRequest": {
  "allOf": [
   {"$ref": "#/components/schemas/MessagesConversation"},
   {
    "type": "object",
    "required": ["max_tokens"],
    "properties": {
     "max_tokens": {"type": "integer", "minimum": 1},
     "stop_sequences": {"type": ["array", "null"], "items": {"type": "string", "minLength": 1}, "maxItems": 4},
     "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
     "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
     "top_k": {"type": ["integer", "null"], "minimum": -1},
     "stream": {"type": ["boolean", "null"]},
     "metadata": {"type": ["object", "null"]},
     "output_config": {
      "type": ["object", "null"],
      "properties": {
       "effort": {"enum": ["low", "medium", "high", "xhigh", "max", null]},
       "format": {
        "type": ["object", "null"],
        "required": ["type", "schema"],
        "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}}}}}}}]},
 "CountTokensRequest": {"$ref": "#/components/schemas/MessagesConversation"},
 "AnthropicMessage": {
  "type": "object",
  "required": ["id", "type", "role", "content", "model", "stop_reason", "usage"],
  "properties": {
   "id": {"type": "string"},
   "type": {"const": "message"},
   "role": {"const": "assistant"},
   "content": {"type": "array", "items": {"$ref": "#/components/schemas/MessagesBlock"}},
   "model": {"type": "string"},
   "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use", null]},
   "stop_sequence": {"type": "string"},
   "usage": {
    "type": "object",
    "required": ["input_tokens", "output_tokens"],
    "properties": {"input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}}}}},
 "TokenCount": {
  "type": "object",
  "required": ["input_tokens", "context_management"],
  "properties": {
   "input_tokens": {"type": "integer"},
   "context_management": {
    "type": "object",
    "required": ["original_input_tokens"],
    "properties": {"original_input_tokens": {"type": "integer"}}}}},
 "ResponsesRequest": {
  "allOf": [
   {"$ref": "#/components/schemas/Sampling"},
   {
    "type": "object",
    "required": ["input"],
    "properties": {
     "input": {
      "anyOf": [
       {"type": "string"},
       {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/ResponseItem"}}]},
     "instructions": {"type": ["string", "null"]},
     "previous_response_id": {"type": ["string", "null"]},
     "store": {"type": ["boolean", "null"], "default": true},
     "background": {"type": ["boolean", "null"], "default": false},
     "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
     "top_logprobs": {"type": ["integer", "null"], "minimum": 0},
     "include": {"type": ["array", "null"], "items": {"type": "string"}},
     "metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
     "parallel_tool_calls": {"type": ["boolean", "null"], "default": true},
     "tools": {
      "type": ["array", "null"],
      "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}},
     "tool_choice": {
      "anyOf": [{"enum": ["none", "auto", "required", null]}, {"type": "object", "required": ["type"]}]},
     "text": {
      "type": ["object", "null"],
      "properties": {"format": {"type": ["object", "null"], "required": ["type"]}}},
     "reasoning": {
      "type": ["object", "null"],
      "properties": {
       "effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max", null]},
       "summary": {"enum": ["auto", "concise", "detailed", null]}}},
     "truncation": {"enum": ["auto", "disabled", null]},
     "service_tier": {"enum": ["auto", "default", "flex", "scale", "priority", null]}}}]},
 "ResponseItem": {
  "type": "object",
  "properties": {
   "type": {
    "enum": ["message", "function_call", "function_call_output", "reasoning", "item_reference", "custom_tool_call", "custom_tool_call_output", "local_shell_call", "local_shell_call_output", null]},
   "id": {"type": ["string", "null"]},
   "role": {"enum": ["user", "assistant", "system", "developer"]}}},
 "Response": {
  "type": "object",
  "required": ["id", "object", "created_at", "model", "output", "status", "usage"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "response"},
   "created_at": {"type": "integer"},
   "model": {"type": "string"},
   "output": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["type", "id"],
     "properties": {
      "type": {"enum": ["message", "reasoning", "function_call"]},
      "id": {"type": "string"}}}},
   "status": {"enum": ["queued", "in_progress", "completed", "incomplete", "cancelled", "failed"]},
   "previous_response_id": {"type": ["string", "null"]},
   "usage": {
    "type": ["object", "null"],
    "required": ["input_tokens", "output_tokens", "total_tokens"],
    "properties": {
     "input_tokens": {"type": "integer"},
     "output_tokens": {"type": "integer"},
     "total_tokens": {"type": "integer"}}}}},
 "EmbeddingRequest": {
  "type": "object",
  "description": "Either `input` or `messages`.",
  "properties": {
   "model": {"type": ["string", "null"]},
   "input": {
    "anyOf": [
     {"type": "string"},
     {"type": "array", "minItems": 1, "items": {"type": "string"}},
     {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
     {
      "type": "array",
      "minItems": 1,
      "items": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}}]},
   "messages": {"type": "array", "items": {"$ref": "#/components/schemas/Message"}},
   "encoding_format": {"enum": ["float", "base64"], "default": "float"},
   "embed_dtype": {"enum": ["float32"]},
   "endianness": {"enum": ["native", "little", "big"], "default": "native"},
   "dimensions": {"type": ["integer", "null"], "minimum": 1},
   "use_activation": {"type": ["boolean", "null"]},
   "truncate_prompt_tokens": {"type": ["integer", "null"], "minimum": -1},
   "truncation_side": {"enum": ["left", "right", null]},
   "add_special_tokens": {"type": "boolean"},
   "priority": {"type": "integer"},
   "cache_salt": {"type": ["string", "null"]},
   "request_id": {"type": ["string", "null"]},
   "user": {"type": ["string", "null"]}}},
 "CohereEmbedRequest": {
  "type": "object",
  "required": ["texts"],
  "properties": {
   "model": {"type": ["string", "null"]},
   "texts": {"type": "array", "minItems": 1, "items": {"type": "string"}},
   "input_type": {"type": ["string", "null"]},
   "embedding_types": {
    "type": ["array", "null"],
    "items": {"enum": ["float", "base64", "binary", "ubinary"]}},
   "output_dimension": {"type": ["integer", "null"], "minimum": 1},
   "truncate": {"enum": ["NONE", "START", "END"], "default": "END"},
   "max_tokens": {"type": ["integer", "null"], "minimum": 1},
   "priority": {"type": "integer"}}},
 "CohereEmbeddings": {
  "type": "object",
  "required": ["id", "embeddings", "texts", "meta", "response_type"],
  "properties": {
   "id": {"type": "string"},
   "embeddings": {
    "type": "object",
    "properties": {
     "float": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
     "base64": {"type": "array", "items": {"type": "string"}},
     "binary": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
     "ubinary": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}}},
   "texts": {"type": "array", "items": {"type": "string"}},
   "meta": {"type": "object"},
   "response_type": {"const": "embeddings_by_type"}}},
 "PoolingUsage": {
  "type": "object",
  "required": ["prompt_tokens", "total_tokens"],
  "properties": {
   "prompt_tokens": {"type": "integer"},
   "total_tokens": {"type": "integer"},
   "completion_tokens": {"type": "integer"},
   "prompt_tokens_details": {"type": "null"}}},
 "Vector": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]},
 "EmbeddingList": {
  "type": "object",
  "required": ["id", "object", "created", "model", "data", "usage"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "list"},
   "created": {"type": "integer"},
   "model": {"type": "string"},
   "data": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["index", "object", "embedding"],
     "properties": {
      "index": {"type": "integer"},
      "object": {"const": "embedding"},
      "embedding": {"$ref": "#/components/schemas/Vector"}}}},
   "usage": {"$ref": "#/components/schemas/PoolingUsage"}}},
 "PoolingList": {
  "type": "object",
  "required": ["id", "object", "created", "model", "data", "usage"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "list"},
   "created": {"type": "integer"},
   "model": {"type": "string"},
   "data": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["index", "object", "data"],
     "properties": {
      "index": {"type": "integer"},
      "object": {"const": "pooling"},
      "data": {"$ref": "#/components/schemas/Vector"}}}},
   "usage": {"$ref": "#/components/schemas/PoolingUsage"}}},
 "ClassList": {
  "type": "object",
  "required": ["id", "object", "created", "model", "data", "usage"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "list"},
   "created": {"type": "integer"},
   "model": {"type": "string"},
   "data": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["index", "label", "probs", "num_classes"],
     "properties": {
      "index": {"type": "integer"},
      "label": {"type": ["string", "null"]},
      "probs": {"type": "array", "items": {"type": "number"}},
      "num_classes": {"type": "integer"}}}},
   "usage": {"$ref": "#/components/schemas/PoolingUsage"}}},
 "Texts": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
 "ScoreRequest": {
  "type": "object",
  "description": "Both sides: `queries` and `documents` (or `items`), `data_1` and `data_2`, or `text_1` and `text_2`.",
  "properties": {
   "model": {"type": ["string", "null"]},
   "queries": {"$ref": "#/components/schemas/Texts"},
   "documents": {"$ref": "#/components/schemas/Texts"},
   "items": {"$ref": "#/components/schemas/Texts"},
   "data_1": {"$ref": "#/components/schemas/Texts"},
   "data_2": {"$ref": "#/components/schemas/Texts"},
   "text_1": {"$ref": "#/components/schemas/Texts"},
   "text_2": {"$ref": "#/components/schemas/Texts"},
   "max_tokens_per_query": {"type": ["integer", "null"], "minimum": 0},
   "max_tokens_per_doc": {"type": ["integer", "null"], "minimum": 0},
   "instruction": {"type": ["string", "null"]},
   "chat_template_kwargs": {"type": ["object", "null"]},
   "use_activation": {"type": ["boolean", "null"]},
   "truncate_prompt_tokens": {"type": ["integer", "null"], "minimum": -1}}},
 "ScoreList": {
  "type": "object",
  "required": ["id", "object", "created", "model", "data", "usage"],
  "properties": {
   "id": {"type": "string"},
   "object": {"const": "list"},
   "created": {"type": "integer"},
   "model": {"type": "string"},
   "data": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["index", "object", "score"],
     "properties": {
      "index": {"type": "integer"},
      "object": {"const": "score"},
      "score": {"type": "number"}}}},
   "usage": {"$ref": "#/components/schemas/PoolingUsage"}}},
 "RerankRequest": {
  "type": "object",
  "required": ["query", "documents"],
  "properties": {
   "model": {"type": ["string", "null"]},
   "query": {"type": "string"},
   "documents": {"$ref": "#/components/schemas/Texts"},
   "top_n": {"type": ["integer", "null"], "minimum": 0},
   "max_tokens_per_query": {"type": ["integer", "null"], "minimum": 0},
   "max_tokens_per_doc": {"type": ["integer", "null"], "minimum": 0},
   "instruction": {"type": ["string", "null"]},
   "chat_template_kwargs": {"type": ["object", "null"]},
   "use_activation": {"type": ["boolean", "null"]},
   "truncate_prompt_tokens": {"type": ["integer", "null"], "minimum": -1}}},
 "Ranking": {
  "type": "object",
  "required": ["id", "model", "usage", "results"],
  "properties": {
   "id": {"type": "string"},
   "model": {"type": "string"},
   "usage": {"$ref": "#/components/schemas/PoolingUsage"},
   "results": {
    "type": "array",
    "items": {
     "type": "object",
     "required": ["index", "document", "relevance_score"],
     "properties": {
      "index": {"type": "integer"},
      "document": {
       "type": "object",
       "properties": {"text": {"type": ["string", "null"]}, "multi_modal": {"type": "null"}}},
      "relevance_score": {"type": "number"}}}}}},
 "LoadLoraAdapter": {
  "type": "object",
  "required": ["lora_name", "lora_path"],
  "properties": {
   "lora_name": {"type": "string", "minLength": 1},
   "lora_path": {"type": "string", "minLength": 1},
   "load_inplace": {"type": "boolean", "default": false}}},
 "UnloadLoraAdapter": {
  "type": "object",
  "required": ["lora_name"],
  "properties": {
   "lora_name": {"type": "string", "minLength": 1},
   "lora_int_id": {"type": ["integer", "null"]}}},
 "TokenizeRequest": {
  "anyOf": [
   {
    "type": "object",
    "required": ["prompt"],
    "properties": {
     "model": {"type": ["string", "null"]},
     "prompt": {"type": "string"},
     "add_special_tokens": {"type": "boolean", "default": true},
     "return_token_strs": {"type": ["boolean", "null"]}}},
   {
    "type": "object",
    "required": ["messages"],
    "properties": {
     "model": {"type": ["string", "null"]},
     "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}},
     "add_generation_prompt": {"type": "boolean", "default": true},
     "return_token_strs": {"type": ["boolean", "null"]}}}]},
 "Tokens": {
  "type": "object",
  "required": ["count", "max_model_len", "tokens", "token_strs"],
  "properties": {
   "count": {"type": "integer"},
   "max_model_len": {"type": "integer"},
   "tokens": {"type": "array", "items": {"type": "integer"}},
   "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}},
 "DetokenizeRequest": {
  "type": "object",
  "required": ["tokens"],
  "properties": {
   "model": {"type": ["string", "null"]},
   "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}}},
 "Text": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
 "Sampling": {
  "type": "object",
  "properties": {
   "model": {"type": ["string", "null"], "description": "A served name; absent: the model there is."},
   "n": {
    "type": "integer",
    "minimum": 1,
    "maximum": 16384,
    "default": 1,
    "description": "Answers a prompt; more than 1 needs a temperature above 0."},
   "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
   "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
   "top_k": {"type": ["integer", "null"], "minimum": -1},
   "min_p": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
   "repetition_penalty": {"type": ["number", "null"], "exclusiveMinimum": 0},
   "presence_penalty": {"type": ["number", "null"], "minimum": -2, "maximum": 2},
   "frequency_penalty": {"type": ["number", "null"], "minimum": -2, "maximum": 2},
   "seed": {
    "type": ["integer", "null"],
    "minimum": -9223372036854775808,
    "maximum": 9223372036854775807},
   "stop": {
    "anyOf": [
     {"type": "string", "minLength": 1},
     {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 4},
     {"type": "null"}]},
   "stop_token_ids": {"type": ["array", "null"], "items": {"type": "integer"}},
   "include_stop_str_in_output": {"type": "boolean", "default": false},
   "ignore_eos": {"type": "boolean", "default": false},
   "min_tokens": {"type": "integer", "minimum": 0, "default": 0},
   "max_tokens": {"type": ["integer", "null"], "minimum": 0},
   "prompt_logprobs": {"type": ["integer", "null"], "minimum": -1},
   "logit_bias": {"type": ["object", "null"], "additionalProperties": {"type": "number"}},
   "allowed_token_ids": {"type": ["array", "null"], "items": {"type": "integer"}, "minItems": 1},
   "bad_words": {"type": "array", "items": {"type": "string", "minLength": 1}},
   "skip_special_tokens": {"type": "boolean", "default": true},
   "spaces_between_special_tokens": {"type": "boolean", "default": true},
   "add_special_tokens": {"type": "boolean"},
   "truncate_prompt_tokens": {"type": ["integer", "null"], "minimum": -1},
   "truncation_side": {"enum": ["left", "right", null]},
   "priority": {"type": "integer", "default": 0},
   "cache_salt": {"type": ["string", "null"], "minLength": 1},
   "request_id": {"type": ["string", "null"]},
   "user": {"type": ["string", "null"]},
   "stream": {"type": ["boolean", "null"]},
   "stream_options": {
    "type": ["object", "null"],
    "properties": {
     "include_usage": {"type": ["boolean", "null"]},
     "continuous_usage_stats": {"type": ["boolean", "null"]}}},
   "stream_interval": {"type": ["integer", "null"], "minimum": 1},
   "return_token_ids": {"type": ["boolean", "null"]},
   "return_tokens_as_token_ids": {"type": ["boolean", "null"]},
   "repetition_detection": {
    "type": ["object", "null"],
    "properties": {
     "max_pattern_size": {"type": "integer", "minimum": 0},
     "min_pattern_size": {"type": "integer", "minimum": 0},
     "min_count": {"type": "integer", "minimum": 0}}},
   "echo": {"type": ["boolean", "null"]}}},
 "ChatOptions": {
  "type": "object",
  "properties": {
   "max_completion_tokens": {"type": ["integer", "null"]},
   "logprobs": {"type": ["boolean", "null"]},
   "top_logprobs": {"type": ["integer", "null"], "minimum": -1},
   "add_generation_prompt": {"type": "boolean", "default": true},
   "continue_final_message": {"type": "boolean", "default": false},
   "chat_template": {"type": ["string", "null"]},
   "chat_template_kwargs": {"type": ["object", "null"]},
   "documents": {"type": ["array", "null"], "items": {"type": "object"}},
   "reasoning_effort": {"type": ["string", "null"]},
   "include_reasoning": {"type": "boolean", "default": true},
   "parallel_tool_calls": {"type": ["boolean", "null"]},
   "return_prompt_text": {"type": ["boolean", "null"]}}}})json";
}

}  // namespace sluice
