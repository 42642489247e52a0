// Renders mutated templates: the result must always be text or an error.
#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"

#include "base/source_path_testing.h"
#include "chat/template_fuzz.cc"  // NOLINT: the fuzz target itself, so that it is compiled and run with every test.

namespace sluice {
namespace {

TEST(ChatTemplateMutations, NeverCrash) {
  std::vector<std::string> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("tests/data/chat_templates/templates"))) {
    seeds.push_back(ReadFile(entry.path()).value());
  }
  std::sort(seeds.begin(), seeds.end());
  ASSERT_GT(seeds.size(), 20u);
  const std::vector<std::string> pieces = {"{%",
                                           "%}",
                                           "{{",
                                           "}}",
                                           "{#",
                                           "#}",
                                           "-",
                                           "+",
                                           "'",
                                           "\"",
                                           "\\",
                                           "(",
                                           ")",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           "|",
                                           ".",
                                           ",",
                                           ":",
                                           "~",
                                           "**",
                                           "//",
                                           " if ",
                                           " else ",
                                           " for x in ",
                                           " is ",
                                           " not ",
                                           " in ",
                                           "{% endif %}",
                                           "{% endfor %}",
                                           "{% set x = 1 %}",
                                           "{% macro m(a) %}",
                                           "{% endmacro %}",
                                           "{{ m(m) }}",
                                           "{% break %}",
                                           "{% raw %}",
                                           "{% filter upper %}",
                                           "{% call m() %}",
                                           "loop",
                                           "namespace(",
                                           "messages",
                                           "|tojson",
                                           "|map('",
                                           "|join",
                                           "|sort",
                                           "[::-1]",
                                           ".format(",
                                           " % ",
                                           "999999999999999999999",
                                           "1e999",
                                           "\xC3",
                                           "\xF0\x9F\x98\x80",
                                           "\n",
                                           "\r\n",
                                           std::string(1, '\0')};
  std::mt19937 random(20250726);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 1500; ++round) {
    std::string text = seeds[below(seeds.size())];
    for (size_t i = 0, count = 1 + below(6); i < count && !text.empty(); ++i) {
      const size_t at = below(text.size());
      switch (below(5)) {
        case 0: text.erase(at, 1 + below(20)); break;
        case 1: text.insert(at, pieces[below(pieces.size())]); break;
        case 2: text[at] = static_cast<char>(below(256)); break;
        case 3: text.insert(at, text.substr(below(text.size()), 1 + below(60))); break;
        default: {
          const std::string& other = seeds[below(seeds.size())];
          text.replace(at, 1 + below(10), other.substr(below(other.size()), 1 + below(40)));
        }
      }
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
}

}  // namespace
}  // namespace sluice
