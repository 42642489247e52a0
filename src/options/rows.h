// The parts of the table; use option.h.
#pragma once

#include <vector>

#include "options/option.h"

namespace sluice::options {

std::vector<Option> ModelRows();     // what is loaded
std::vector<Option> EngineRows();    // memory, scheduling, machine
std::vector<Option> ServerRows();    // HTTP, answers, logs
std::vector<Option> ClientRows();    // chat, complete, bench and the small tools
std::vector<Option> AcceptedRows();  // taken without effect, so that scripts written for vLLM run

}  // namespace sluice::options
