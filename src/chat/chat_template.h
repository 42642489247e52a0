// Chat templates: the Jinja templates of published models, compiled once and rendered for every
// request.
//
// Implements the language of transformers' environment: jinja2's immutable sandbox with
// trim_blocks, lstrip_blocks, loop controls, the `generation` tag, Python's values and their repr,
// and the names `tojson`, `raise_exception` and `strftime_now`. `include`, `import`, `extends` and
// `block` are refused when compiling.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

namespace jinja {
struct Program;
}

// A render that reaches one of these limits fails. Steps and memory grow with the size of the
// variables, so that a long conversation is not mistaken for an attack.
struct RenderLimits {
  size_t max_output_bytes = size_t{16}
                            << 20;  // Of the rendered text, and of every string made on the way.
  size_t max_memory_bytes =
      size_t{32}
      << 20;  // Of all values alive at a time, besides 8 bytes per byte of the variables.
  // Nodes evaluated, objects made, elements and bytes touched (jinja/budget.h), besides 8 per byte
  // of the variables.
  int64_t max_steps = 10'000'000;
  int max_depth = 1000;  // Nested nodes and calls.
};

struct RenderOptions {
  RenderLimits limits;
  // The result of strftime_now(), as civil time without a zone. Absent: the local clock.
  std::optional<std::chrono::local_time<std::chrono::microseconds>> now;
  // Called every few milliseconds on the rendering thread; true cancels the render. May be empty.
  std::function<bool()> is_cancelled;
};

// A compiled template.
// Thread safety: immutable; Render may be called from any number of threads at a time. Copies share
// the program.
class ChatTemplate {
 public:
  // How the template treats message['content']: as a string, or by walking over its parts.
  enum class ContentFormat { kString, kParts };

  // kInvalidArgument, with the line, for what is invalid, unsupported or nested too deeply. `name`
  // appears in error messages.
  static Result<ChatTemplate> Compile(std::string source, std::string name = "");

  // `variables`: a JSON object of the variables that the template may read (messages, tools,
  // add_generation_prompt, bos_token, ...). An absent name is undefined; null is None.
  // kInvalidArgument: the template called raise_exception (its message verbatim), failed as in
  // Python, or reached a limit. kCancelled: `options.is_cancelled` returned true.
  Result<std::string> Render(const json::Value& variables, const RenderOptions& options = {}) const;

  ContentFormat content_format() const;
  // The names that the template reads without setting them first, sorted, without built-in ones
  // (range, namespace, ...).
  const std::vector<std::string>& variables() const;
  const std::string& source() const;
  // Whether the template reads reasoning as message.thinking, like gpt-oss's.
  bool reads_thinking() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program)
      : program_(std::move(program)) {}
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace sluice
