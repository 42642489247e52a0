#include "options/rows.h"

namespace sluice::options {
namespace {

constexpr std::string_view kGroup = "Of trtllm-serve";

std::vector<Option> Only(std::vector<Option> rows) {
  for (Option& row : rows) row.dialects = DialectBit(Dialect::kTrtllm);
  return rows;
}

}  // namespace

std::vector<Option> TrtllmRows() {
  std::vector<Option> rows = RowsLike(
      {.group = kGroup, .commands = kServe, .no_effect = "there is one engine, and no Python"},
      {
          {"backend", Type::kString, "Which of its engines.", "pytorch",
           "pytorch|tensorrt|trt|_autodeploy"},
          {"custom-module-dirs", Type::kStrings, "Folders of Python modules."},
          {"num-postprocess-workers", Type::kInteger, "Processes for text work."},
          {"fail-fast-on-attention-window-too-large", Type::kFlag, "Refuse windows that exceed."},
          {"enable-tokenization-cache", Type::kFlag, "Remember encoded prompts."},
      });
  const auto beams = RowsLike({.group = kGroup,
                               .commands = kServe,
                               .no_effect = "requests say themselves how many beams they want"},
                              {
                                  {"max-beam-width", Type::kInteger, "Most beams of a request."},
                              });
  const auto refused = RowsLike(
      {.group = kGroup,
       .commands = kServe,
       .refuses = "prompts and answers are computed by one server, which nobody has to find; leave "
                  "it out"},
      {
          {"metadata-server-config-file", Type::kString, "Directory of servers."},
          {"server-role", Type::kString, "Part of this server."},
          {"disagg-cluster-uri", Type::kString, "Directory of servers."},
          {"report-addr", Type::kString, "File for the server's address."},
      });
  const auto python = RowsLike({.group = kGroup,
                                .commands = kServe,
                                .refuses = "there is no Python in this program; leave it out"},
                               {
                                   {"custom-tokenizer", Type::kString, "Python class."},
                                   {"post-processor-hook", Type::kString, "Python function."},
                               });
  for (const auto& part : {beams, refused, python})
    rows.insert(rows.end(), part.begin(), part.end());
  rows = Only(std::move(rows));
  for (Option& row : rows) {
    // bench has an option of that name.
    if (row.name != "backend") continue;
    row.name = "trtllm-backend";
    row.flag = "backend";
  }
  rows.push_back({.name = "enable-iter-perf-stats",
                  .type = Type::kFlag,
                  .default_value = "false",
                  .group = kGroup,
                  .commands = kServe,
                  .help = "Let GET /metrics tell of every step, as trtllm-serve does.",
                  .dialects = DialectBit(Dialect::kTrtllm)});
  rows.push_back({.name = "set",
                  .type = Type::kStrings,
                  .group = kGroup,
                  .commands = kServe,
                  .help = "key=value, as in the YAML file: kv_cache_config.dtype=fp8.",
                  .dialects = DialectBit(Dialect::kTrtllm)});
  return rows;
}

}  // namespace sluice::options
