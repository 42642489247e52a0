#include "options/rows.h"

namespace sluice::options {

void AddParallelRows(std::vector<Option>& table) {
  Rows rows(table, "Several devices", kEngineCommands | kInspect);
  rows.Integer("tensor-parallel-size", "1",
               "Ranks that share each layer (tensor parallelism). A CPU has one for each NUMA node "
               "at most, unless --tensor-parallel-mode is exact. Answers do not depend on it.",
               {.range = {1, 65536}, .aliases = "-tp", .trtllm = "--tp_size"});
  rows.Integer("pipeline-parallel-size", "1",
               "Stages that divide the layers (pipeline parallelism). A CPU has one, unless "
               "--tensor-parallel-mode is exact. Answers do not depend on it.",
               {.range = {1, 65536}, .aliases = "-pp", .trtllm = "--pp_size"});
  rows.Choice("tensor-parallel-mode", "auto", "auto|exact",
              "auto: as many ranks as a CPU is faster with; exact: as many as "
              "--tensor-parallel-size and --pipeline-parallel-size say.",
              {.commands = kEngineCommands});
}

}  // namespace sluice::options
