#include "parallel/orted_command.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr size_t kMostPartBytes = 4000;
constexpr std::string_view kDigits = "0123456789";

struct OrtedPart {
  std::string_view parameter;  // name of the parameter of orted
  std::string OrtedCommand::*value;
  // Characters allowed besides letters and digits; "": only digits are allowed.
  std::string_view others;
};
constexpr std::array<OrtedPart, 5> kOrtedParts = {{
    {"ess_base_jobid", &OrtedCommand::job, ""},
    {"ess_base_vpid", &OrtedCommand::number, ""},
    {"ess_base_num_procs", &OrtedCommand::num_daemons, ""},
    {"orte_node_regex", &OrtedCommand::nodes, "-_.,:@()[]*"},
    {"orte_hnp_uri", &OrtedCommand::first, "-.,:;/[]%"},
}};

bool IsLetterOrDigit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

Status CheckPart(const OrtedPart& part, std::string_view value) {
  const bool is_number = part.others.empty();
  const bool fits = std::all_of(value.begin(), value.end(), [&](char letter) {
    return is_number
               ? kDigits.find(letter) != std::string_view::npos
               : IsLetterOrDigit(letter) || part.others.find(letter) != std::string_view::npos;
  });
  // A value that starts with - could be interpreted as an option.
  if (fits && !value.empty() && value.front() != '-' && value.size() <= kMostPartBytes) return {};
  return Fail(ErrorCode::kInvalidData,
              fmt::format("the command of mpirun: expected {} as Open MPI 4 writes it, found '{}'",
                          part.parameter, value.substr(0, 100)));
}

// Removes the quotes that mpirun adds for a shell.
std::string_view WithoutQuotes(std::string_view word) {
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"')
    return word.substr(1, word.size() - 2);
  return word;
}

}  // namespace

Result<OrtedCommand> ParseOrtedCommand(std::span<const std::string> words) {
  OrtedCommand command;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    for (const OrtedPart& part : kOrtedParts) {
      if (words[i] == part.parameter) command.*part.value = WithoutQuotes(words[i + 1]);
    }
  }
  for (const OrtedPart& part : kOrtedParts) RETURN_IF_ERROR(CheckPart(part, command.*part.value));
  return command;
}

std::string EncodeOrtedCommand(const OrtedCommand& command) {
  std::string text;
  for (const OrtedPart& part : kOrtedParts) {
    text += command.*part.value;
    text += '\n';
  }
  return text;
}

Result<OrtedCommand> DecodeOrtedCommand(std::string_view text) {
  OrtedCommand command;
  for (const OrtedPart& part : kOrtedParts) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos)
      return Fail(ErrorCode::kInvalidData, "a command of mpirun that ends too early");
    command.*part.value = text.substr(0, end);
    RETURN_IF_ERROR(CheckPart(part, command.*part.value));
    text.remove_prefix(end + 1);
  }
  if (!text.empty()) return Fail(ErrorCode::kInvalidData, "a command of mpirun that does not end");
  return command;
}

std::vector<std::string> OrtedWords(const OrtedCommand& command) {
  std::vector<std::string> words{"orted", "-mca", "ess", "env", "-mca", "plm", "rsh"};
  for (const OrtedPart& part : kOrtedParts) {
    words.emplace_back("-mca");
    words.emplace_back(part.parameter);
    words.push_back(command.*part.value);
  }
  return words;
}

}  // namespace sluice
