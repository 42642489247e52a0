// Chat templates: the Jinja templates of published models, compiled once and rendered for every
// request.
//
// Implements the language of transformers' environment: jinja2's immutable sandbox with
// trim_blocks, lstrip_blocks, loop controls, the `generation` tag, Python's values and their repr,
// and the functions `tojson`, `raise_exception` and `strftime_now`. Compiling fails for `include`,
// `import`, `extends` and `block`.
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

// A render that reaches one of these limits fails. The limits of steps and memory increase with the
// size of the template's variables, so that a long conversation stays within them.
struct RenderLimits {
  size_t max_output_bytes = size_t{16}
                            << 20;  // Limit of the rendered text, and of every intermediate string.
  size_t max_memory_bytes =
      size_t{32}
      << 20;  // Limit of all values alive at a time; 8 bytes per byte of the variables are added.
  // Limit of evaluated nodes, created objects, and touched elements and bytes (jinja/budget.h); 8
  // per byte of the variables are added.
  int64_t max_steps = 10'000'000;
  int max_depth = 1000;  // Limit of nested nodes and calls.
};

struct RenderOptions {
  RenderLimits limits;
  // The time that strftime_now() returns, without a time zone. Absent: the local clock.
  std::optional<std::chrono::local_time<std::chrono::microseconds>> now;
  // Called every few milliseconds on the rendering thread; returning true cancels the render. May
  // be empty.
  std::function<bool()> is_cancelled;
};

// A compiled template. Copies share the compiled program. Thread safety: immutable; any number of
// threads may call Render at a time.
class ChatTemplate {
 public:
  // The form in which the template reads message['content']: a string, or a list of parts that it
  // loops over.
  enum class ContentFormat { kString, kParts };

  // kInvalidArgument, with the line, if the source is invalid, unsupported or nested too deeply.
  // `name` appears in error messages.
  static Result<ChatTemplate> Compile(std::string source, std::string name = "");

  // `variables`: a JSON object of the variables that the template may read (messages, tools,
  // add_generation_prompt, bos_token, ...). An absent name is undefined; null is None.
  // kInvalidArgument: the template called raise_exception (its message is passed on verbatim),
  // failed as it would in Python, or reached a limit. kCancelled: `options.is_cancelled` returned
  // true.
  Result<std::string> Render(const json::Value& variables, const RenderOptions& options = {}) const;

  ContentFormat content_format() const;
  // The sorted names that the template reads without setting them first. Built-in names (range,
  // namespace, ...) are not included.
  const std::vector<std::string>& variables() const;
  const std::string& source() const;
  // Whether the template reads reasoning from message.thinking, as gpt-oss's template does.
  bool reads_thinking() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program)
      : program_(std::move(program)) {}
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace sluice
