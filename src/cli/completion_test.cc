#include "cli/completion.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "cli/man_page.h"
#include "cli/offered_options.h"
#include "options/sources.h"

namespace sluice::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const OfferedOption* FindOffered(const std::vector<OfferedOption>& offered, std::string_view flag) {
  for (const OfferedOption& item : offered) {
    for (const std::string& spelling : item.flags) {
      if (spelling == flag) return &item;
    }
  }
  return nullptr;
}

TEST(OfferedOptions, OfServeAreThoseThatAct) {
  const std::vector<OfferedOption> offered = OfferedOptions(options::kServe);
  ASSERT_NE(FindOffered(offered, "--port"), nullptr);
  EXPECT_EQ(FindOffered(offered, "--enable-dbo"), nullptr) << "it has no effect here";
  EXPECT_EQ(FindOffered(offered, "--middleware"), nullptr) << "it is refused";
  EXPECT_EQ(FindOffered(offered, "--system-prompt"), nullptr) << "it is an option of chat";
  EXPECT_EQ(FindOffered(offered, "--set"), nullptr) << "it is an option of trtllm-serve";
  EXPECT_THAT(FindOffered(offered, "--dtype")->values, Contains("bfloat16"));
  EXPECT_THAT(FindOffered(offered, "--load-format")->values, Contains("dummy"));
  EXPECT_THAT(FindOffered(offered, "--load-format")->values, Not(Contains("gguf")));
  EXPECT_EQ(FindOffered(offered, "-m")->option->name, "model");
  EXPECT_EQ(FindOffered(offered, "--config")->option->value, options::ValueKind::kFile);
}

TEST(OfferedOptions, OfAFlagItIsTheFormThatChangesTheDefault) {
  const std::vector<OfferedOption> offered = OfferedOptions(options::kBenchLatency);
  EXPECT_THAT(FindOffered(offered, "--no-limits")->flags, ElementsAre("--no-limits"));
  EXPECT_THAT(FindOffered(offered, "--allow-nonfinite")->flags, ElementsAre("--allow-nonfinite"));
}

// If an option's help contains "file" or "folder", its value must be completed as a file or folder.
TEST(OfferedOptions, WhatIsCalledAFileIsCompletedAsOne) {
  for (const OfferedOption& item : OfferedOptions(options::kAllCommands)) {
    if (item.option->type != options::Type::kString || !item.values.empty()) continue;
    const std::string_view help = item.option->help;
    if (help.starts_with("File ") || help.starts_with("JSON file") || help.starts_with("Folder")) {
      EXPECT_NE(item.option->value, options::ValueKind::kPlain) << item.option->name;
    }
  }
}

// The scripts put lists of words, separated by spaces, between single quotes.
TEST(OfferedOptions, WordsNeedNoQuotes) {
  for (const OfferedOption& item : OfferedOptions(options::kAllCommands)) {
    for (const std::string& flag : item.flags)
      EXPECT_EQ(flag.find_first_of(" '\"\\$`*?()"), std::string::npos) << flag;
    for (std::string_view value : item.values)
      EXPECT_EQ(value.find_first_of(" '\"\\$`*?()"), std::string::npos) << value;
  }
}

TEST(Completion, EveryCommandAndOptionIsInEveryScript) {
  const std::string bash = BashCompletion(), zsh = ZshCompletion(), fish = FishCompletion();
  for (const Command& command : Commands()) {
    EXPECT_THAT(bash, HasSubstr(fmt::format("    '{}')\n", command.name)));
    EXPECT_THAT(zsh, HasSubstr(fmt::format("    '{}')\n", command.name)));
    EXPECT_THAT(fish, HasSubstr(fmt::format("'__sluice_command {}'", command.name)));
    for (const OfferedOption& item : OfferedOptions(command.bit)) {
      const std::string& flag = item.flags[0];
      EXPECT_THAT(bash, HasSubstr(flag));
      EXPECT_THAT(zsh, HasSubstr(flag + (item.TakesValue() ? "=[" : "[")));
      EXPECT_THAT(fish, HasSubstr(fmt::format("'__sluice_command {}' -l {} ", command.name,
                                              flag.substr(2))));
    }
  }
}

TEST(Completion, AnUnknownShellIsRefused) {
  const auto run = [](const std::vector<std::string>& words) {
    return RunCompletion(
        options::Resolve(words, {}, options::kCompletion, options::Dialect::kSluice)->settings);
  };
  EXPECT_EQ(run({}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(run({"csh"}).error().message, HasSubstr("bash, zsh or fish, found 'csh'"));
}

TEST(ManPage, ListsCommandsAndOptions) {
  const std::string page = ManPage();
  EXPECT_THAT(page, HasSubstr(".SH NAME\nsluice \\- "));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-port\\fR \\fIinteger\\fR\n"));
  EXPECT_THAT(page, HasSubstr("\\fBSLUICE_PORT\\fR"));
  for (const Command& command : Commands())
    EXPECT_THAT(page, HasSubstr(std::string(command.summary.substr(0, 8)))) << command.name;
  // A line that begins with . or ' is a roff request; the page may use only known ones.
  size_t begin = 0;
  while (begin < page.size()) {
    const size_t end = page.find('\n', begin);
    const std::string_view line = std::string_view(page).substr(begin, end - begin);
    if (line.starts_with('.') || line.starts_with('\'')) {
      const std::string_view request = line.substr(0, line.find(' '));
      EXPECT_THAT((std::vector<std::string_view>{".\\\"", ".TH", ".SH", ".SS", ".TP", ".B", ".I",
                                                 ".br", ".nf", ".fi"}),
                  Contains(request));
    }
    begin = end + 1;
  }
}

}  // namespace
}  // namespace sluice::cli
