// The only command that mpirun runs on another machine: its daemon, orted.
//
// mpirun passes the command to an agent (instead of ssh), which sends it to the process that waits
// on that machine. Only the values that differ between starts are taken from it, each checked
// against an allowed alphabet; the other machine builds the command line itself, so that no other
// command can be run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct OrtedCommand {
  std::string job;          // "1936982016"
  std::string number;       // number of the daemon: "2"
  std::string num_daemons;  // "3"
  std::string nodes;        // "node1,[2:10].55.0.1,[2:10].55.0.2@0(3)"
  std::string first;        // how to reach mpirun: "1936982016.0;tcp://10.55.0.1:60561"
};

// Parses the agent's arguments after the machine's name. kInvalidData names the missing or
// malformed value, as from an unknown version of mpirun.
Result<OrtedCommand> ParseOrtedCommand(std::span<const std::string> words);

// Encodes the command as a text of five lines, and back. kInvalidData for any other text.
std::string EncodeOrtedCommand(const OrtedCommand& command);
Result<OrtedCommand> DecodeOrtedCommand(std::string_view text);

// Returns the argument vector, program first. orted stays in the foreground.
std::vector<std::string> OrtedWords(const OrtedCommand& command);

}  // namespace sluice
