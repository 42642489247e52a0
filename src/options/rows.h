// The options that have an effect, which are defined in code. Callers use option.h.
#pragma once

#include <string_view>
#include <vector>

#include "options/option.h"

namespace sluice::options {

// Each function appends its rows.
void AddModelRows(std::vector<Option>& table);        // what to load
void AddEngineRows(std::vector<Option>& table);       // memory, scheduling, machine
void AddAdapterRows(std::vector<Option>& table);      // LoRA adapters
void AddParallelRows(std::vector<Option>& table);     // ranks and machines
void AddDistributedRows(std::vector<Option>& table);  // ranks in separate processes
void AddServerRows(std::vector<Option>& table);       // HTTP, answers, logs
void AddRecordingRows(std::vector<Option>& table);    // recordings and receipts
void AddMediaRows(std::vector<Option>& table);        // images
// For chat, complete, bench latency and small tools.
void AddClientRows(std::vector<Option>& table);
void AddBenchRows(std::vector<Option>& table);       // bench serve, bench sweep
void AddEvalRows(std::vector<Option>& table);        // eval, recipe
void AddQuantizeRows(std::vector<Option>& table);    // quantize, diff
void AddSelftestRows(std::vector<Option>& table);    // selftest, kernel-bench
void AddShadowRows(std::vector<Option>& table);      // shadow
void AddSimulationRows(std::vector<Option>& table);  // simulated devices, plan, fit

// Sets of commands that share options.
inline constexpr Commands kEngineArguments = kServe | kBenchLatency | kBenchThroughput | kRunBatch;
inline constexpr Commands kAnswering = kServe | kChat | kComplete | kRunBatch | kShadow;
inline constexpr Commands kClients = kChat | kComplete;
inline constexpr Commands kBench = kBenchLatency | kBenchThroughput;
inline constexpr Commands kLoad = kBenchServe | kBenchSweep;
// Commands that may connect to a running server.
inline constexpr Commands kRemote =
    kClients | kLoad | kEval | kRunBatch | kServed | kReplay | kShadow;

// Appends the rows of one group. `more`: the less common members of Option. If it has commands,
// they replace the group's commands.
class Rows {
 public:
  Rows(std::vector<Option>& table, std::string_view group, Commands commands)
      : table_(table), group_(group), commands_(commands) {}

  // The default is false unless `more` sets another.
  void Flag(std::string_view name, std::string_view help, Option more = {}) {
    Add(Type::kFlag, name, more.default_value.empty() ? "false" : more.default_value, help, more);
  }
  void Text(std::string_view name, std::string_view default_value, std::string_view help,
            Option more = {}) {
    Add(Type::kString, name, default_value, help, more);
  }
  void List(std::string_view name, std::string_view default_value, std::string_view help,
            Option more = {}) {
    Add(Type::kStrings, name, default_value, help, more);
  }
  void Integer(std::string_view name, std::string_view default_value, std::string_view help,
               Option more = {}) {
    Add(Type::kInteger, name, default_value, help, more);
  }
  void Size(std::string_view name, std::string_view default_value, std::string_view help,
            Option more = {}) {
    Add(Type::kSize, name, default_value, help, more);
  }
  void Number(std::string_view name, std::string_view default_value, std::string_view help,
              Option more = {}) {
    Add(Type::kNumber, name, default_value, help, more);
  }
  void Choice(std::string_view name, std::string_view default_value, std::string_view choices,
              std::string_view help, Option more = {}) {
    more.choices = choices;
    Add(Type::kChoice, name, default_value, help, more);
  }
  void Json(std::string_view name, std::string_view default_value, std::string_view help,
            Option more = {}) {
    Add(Type::kJson, name, default_value, help, more);
  }

 private:
  void Add(Type type, std::string_view name, std::string_view default_value, std::string_view help,
           Option row) {
    row.type = type;
    row.name = name;
    row.default_value = default_value;
    row.help = help;
    row.group = group_;
    if (row.commands == 0) row.commands = commands_;
    table_.push_back(row);
  }

  std::vector<Option>& table_;
  const std::string_view group_;
  const Commands commands_;
};

}  // namespace sluice::options
