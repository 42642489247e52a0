#include "parallel/orted_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

// The arguments with which Open MPI 4.1.4 calls its agent.
const std::vector<std::string> kWords = {
    " orted",
    "--daemonize",
    "-mca",
    "ess",
    "\"env\"",
    "-mca",
    "ess_base_jobid",
    "\"1936982016\"",
    "-mca",
    "ess_base_vpid",
    "2",
    "-mca",
    "ess_base_num_procs",
    "\"3\"",
    "-mca",
    "orte_node_regex",
    "\"vm,[2:10].55.0.1,[2:10].55.0.2@0(3)\"",
    "-mca",
    "orte_hnp_uri",
    "\"1936982016.0;tcp://192.0.2.2:60561;tcp6://[fd00::2]:53935\"",
    "-mca",
    "plm",
    "\"rsh\""};

TEST(OrtedCommandTest, TheCommandIsBuiltAnewFromItsParts) {
  const auto command = ParseOrtedCommand(kWords);
  ASSERT_TRUE(command) << command.error().message;
  const auto again = DecodeOrtedCommand(EncodeOrtedCommand(*command));
  ASSERT_TRUE(again);
  EXPECT_THAT(OrtedWords(*again),
              ::testing::ElementsAre("orted", "-mca", "ess", "env", "-mca", "plm", "rsh", "-mca",
                                     "ess_base_jobid", "1936982016", "-mca", "ess_base_vpid", "2",
                                     "-mca", "ess_base_num_procs", "3", "-mca", "orte_node_regex",
                                     "vm,[2:10].55.0.1,[2:10].55.0.2@0(3)", "-mca", "orte_hnp_uri",
                                     "1936982016.0;tcp://192.0.2.2:60561;tcp6://[fd00::2]:53935"));
}

TEST(OrtedCommandTest, AnythingElseIsRefused) {
  std::vector<std::string> words(kWords.begin(), kWords.end() - 5);
  EXPECT_THAT(ParseOrtedCommand(words).error().message, HasSubstr("expected orte_hnp_uri"));
  OrtedCommand command = *ParseOrtedCommand(kWords);
  const auto refused = [](const OrtedCommand& wrong) {
    return !DecodeOrtedCommand(EncodeOrtedCommand(wrong));
  };
  command.nodes = "a;reboot";
  EXPECT_TRUE(refused(command));
  command.nodes = "--help";
  EXPECT_TRUE(refused(command));
  command.nodes = "$(reboot)";
  EXPECT_TRUE(refused(command));
  command.nodes = "node1";
  EXPECT_FALSE(refused(command));
  command.number = "2 ";
  EXPECT_TRUE(refused(command));
  EXPECT_FALSE(DecodeOrtedCommand(EncodeOrtedCommand(*ParseOrtedCommand(kWords)) + "x"));
}

}  // namespace
}  // namespace sluice
