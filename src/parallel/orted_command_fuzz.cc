// Fuzz target: decodes an arbitrary text as mpirun's command. Accepted values cannot be read as
// options and survive a round trip through the encoder.
#include "base/fuzz_input.h"
#include "parallel/orted_command.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT: a program of one file
  const auto command = DecodeOrtedCommand(fuzz::Text(data, size));
  if (!command) return 0;
  const std::vector<std::string> words = OrtedWords(*command);
  for (size_t i = 1; i < words.size(); i += 3) {
    fuzz::Require(words[i] == "-mca" && words[i + 2].front() != '-');
    fuzz::Require(words[i + 2].find_first_of(" \t\n'\"$`\\|&<>") == std::string::npos);
  }
  fuzz::Require(EncodeOrtedCommand(*command) == fuzz::Text(data, size));
  return 0;
}
