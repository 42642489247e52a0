// The one command that mpirun wants to be run on another machine: its daemon, orted.
//
// mpirun gives it to an agent (in place of ssh), which hands it to the process that waits on that
// machine. Only what differs between starts is taken from it, each part held against what it may
// look like; the command that is run is built anew on the other machine, so that nothing else can
// be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct OrtedCommand {
  std::string job;          // "1936982016"
  std::string number;       // of the daemon: "2"
  std::string num_daemons;  // "3"
  std::string nodes;        // "node1,[2:10].55.0.1,[2:10].55.0.2@0(3)"
  std::string first;        // how to reach mpirun: "1936982016.0;tcp://10.55.0.1:60561"
};

// From the agent's words after the machine's name. kInvalidData names what is missing or is not as
// it should be: the mpirun of an unknown version.
Result<OrtedCommand> ParseOrtedCommand(std::span<const std::string> words);

// As a text of five lines, and back. kInvalidData for anything else.
std::string EncodeOrtedCommand(const OrtedCommand& command);
Result<OrtedCommand> DecodeOrtedCommand(std::string_view text);

// The words to run, the program first; it stays in the foreground.
std::vector<std::string> OrtedWords(const OrtedCommand& command);

}  // namespace sluice
