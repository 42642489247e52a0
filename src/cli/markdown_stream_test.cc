#include "cli/markdown_stream.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

std::string Render(std::string_view text, MarkdownOptions options = {}) {
  MarkdownStream stream(options);
  std::string out = stream.Add(text);
  return out + stream.End();
}

// Renders text with readable names for escape sequences.
std::string Styled(std::string_view text) {
  std::string out = Render(text);
  for (const auto& [sequence, word] : {std::pair{"\x1b[0m", "</>"},
                                       {"\x1b[1m", "<b>"},
                                       {"\x1b[2m", "<dim>"},
                                       {"\x1b[3m", "<i>"},
                                       {"\x1b[4m", "<u>"},
                                       {"\x1b[9m", "<s>"},
                                       {"\x1b[36m", "<code>"}}) {
    for (size_t at = 0; (at = out.find(sequence, at)) != std::string::npos;)
      out.replace(at, std::string_view(sequence).size(), word);
  }
  return out;
}

TEST(MarkdownStreamTest, Inline) {
  EXPECT_EQ(Styled("a **b** *c* `d` ~~e~~ ***f***"),
            "a <b>b</> <i>c</> <code>d</> <s>e</> <b><i>f</>");
  EXPECT_EQ(Styled("**a *b* `c`**"), "<b>a </><b><i>b</><b> </><b><code>c</>");
  EXPECT_EQ(Styled("`` a ` b `` `*x*`"), "<code>a ` b</> <code>*x*</>");
  EXPECT_EQ(Styled("see [the **page**](https://a.b/c_(d) \"title\")."),
            "see <u>the </><b><u>page</> (<dim>https://a.b/c_(d)</>).");
  EXPECT_EQ(Styled("[https://a.b](https://a.b) ![a cat](cat.png)"),
            "<u>https://a.b</> <u>a cat</> (<dim>cat.png</>)");
}

TEST(MarkdownStreamTest, WhatIsNoMarkStays) {
  for (const std::string_view text : {"2 * 3 * 4 = 2*3*4",
                                      "snake_case_name",
                                      "a * b",
                                      "** a **",
                                      "~a~",
                                      "`open",
                                      "**open",
                                      "[x] [y](open",
                                      "!",
                                      "a ![",
                                      "100% _",
                                      "\\",
                                      "#tag",
                                      "####### seven",
                                      "-5 +5 1.",
                                      "a ****",
                                      "a `````",
                                      "a **",
                                      "<b>html</b>",
                                      "|",
                                      "``` a`b",
                                      "x | y"}) {
    EXPECT_EQ(Styled(text), text);
  }
  EXPECT_EQ(Styled("\\*a\\* \\`b\\` \\[c](d) \\d"), "*a* `b` [c](d) \\d");
}

TEST(MarkdownStreamTest, Blocks) {
  EXPECT_EQ(Styled("# One\n## Two `x`\ntext\n"), "<b><u>One</>\n<b>Two </><b><code>x</>\ntext\n");
  EXPECT_EQ(Styled("- a\n  * **b**\n+ c\n1. d\n"), "• a\n  • <b>b</>\n• c\n1. d\n");
  EXPECT_EQ(Styled("> a\n>> b\nc"), "<dim>│ </>a\n<dim>│ │ </>b\nc");
  std::string rule;
  for (int i = 0; i < 40; ++i) rule += "─";
  EXPECT_EQ(Styled("---\n* * *\n--\n"), "<dim>" + rule + "</>\n<dim>" + rule + "</>\n--\n");
  EXPECT_EQ(Styled("a\r\n\r\nb\r\n"), "a\n\nb\n");
}

TEST(MarkdownStreamTest, CodeIsLeftAsItIs) {
  EXPECT_EQ(Styled("```python\n# no **heading**\n\n  ``x\n- y | z\n```\n*a*"),
            "<dim>```python</>\n<code># no **heading**</>\n\n<code>  ``x</>\n<code>- y | z</>\n"
            "<dim>```</>\n<i>a</>");
  EXPECT_EQ(Styled("~~~~\n```\n~~~\n~~~~~\nx"),
            "<dim>~~~~</>\n<code>```</>\n<code>~~~</>\n<dim>~~~~~</>\nx");
  EXPECT_EQ(Styled("```\nnever closed"), "<dim>```</>\n<code>never closed</>");
}

TEST(MarkdownStreamTest, TablesAreAligned) {
  EXPECT_EQ(Render("| a | long | ü |\n|:--|--:|---|\n| **x1** | y | 漢字 |\n| z | a\\|b |\n\nend",
                   {.styles = false}),
            "a      │ long │ ü\n"
            "───────┼──────┼─────\n"
            "**x1** │ y    │ 漢字\n"
            "z      │ a|b  │ \n\nend");
  EXPECT_EQ(Styled("|a|b|\n|-|-|\n|**c**|d|"),
            "<b>a</><dim> │ </><b>b</>\n<dim>──┼──</>\n<b>c</><dim> │ </>d");
  // In a table wider than the terminal, columns are separated by bars but not aligned.
  EXPECT_EQ(Render("|a|b|\n|-|-|\n|cc|d|\n", {.styles = false, .columns = 5}),
            "a │ b\n──┼──\ncc │ d\n");
  EXPECT_EQ(Render("| no\n| table\n", {.styles = false}), "| no\n| table\n");
}

TEST(MarkdownStreamTest, NothingSteersTheTerminal) {
  const std::string text =
      "a\x1b[31m\x07\rb **\x1b]0;x\x07** `\x9b` \xC2\x9B[2J \x7f\n```\n\x1b[2J\n";
  const std::string out = Render(text, {.styles = false});
  for (const char c : out) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << out;
  EXPECT_EQ(out.find("\xC2\x9B"), std::string::npos);
  EXPECT_NE(out.find("\\x1b[31m\\x07\\x0db"), std::string::npos) << out;
}

TEST(MarkdownStreamTest, WithoutStylesMarksStay) {
  EXPECT_EQ(Render("# H\n**a** *b* `c` ~~d~~ [e](f)\n- g\n", {.styles = false}),
            "# H\n**a** *b* `c` ~~d~~ e (f)\n• g\n");
}

// Text whose appearance is certain is returned immediately; little text is held back.
TEST(MarkdownStreamTest, ComesAsItStreams) {
  MarkdownStream stream({});
  EXPECT_EQ(stream.Add("Some wor"), "Some wor");
  EXPECT_EQ(stream.Add("ds **bo"), "ds ");
  EXPECT_EQ(stream.Add("ld**"), "");  // a further * would make it a different mark
  EXPECT_EQ(stream.Add("."), "\x1b[1mbold\x1b[0m.");
  EXPECT_EQ(stream.Add(" **"), " ");
  std::string out;
  for (int i = 0; i < 300; ++i) {
    out += stream.Add("x ");
    EXPECT_LT(stream.held(), 210u);
  }
  EXPECT_TRUE(out.starts_with("**x x ")) << out;
  for (const std::string_view piece : {"`", "*", "_", "[", "-", "#", " ", "~", ">", "!["}) {
    MarkdownStream other({});
    for (int i = 0; i < 3000; ++i) {
      other.Add(piece);
      EXPECT_LE(other.held(), 1001u) << piece;
    }
  }
}

TEST(MarkdownStreamTest, EndBeginsAnew) {
  MarkdownStream stream({});
  stream.Add("# a\n```\ncode **");
  EXPECT_TRUE(stream.End().ends_with("\x1b[0m"));
  EXPECT_EQ(stream.Add("text\n"), "text\n");
}

// Random texts of marks and words: rendering in pieces must give the same result as rendering the
// whole text.
TEST(MarkdownStreamTest, TheResultDoesNotDependOnTheCuts) {
  const std::vector<std::string> parts = {
      "*",
      "**",
      "***",
      "_",
      "__",
      "`",
      "``",
      "```",
      "~~",
      "~~~",
      "[",
      "]",
      "(",
      ")",
      "](",
      "!",
      "\\",
      "#",
      "## ",
      "- ",
      "> ",
      ">",
      "|",
      "-",
      "|-|",
      "\n",
      "\n",
      "\r\n",
      "\r",
      " ",
      "  ",
      "\t",
      "word",
      "é",
      "漢",
      "1. ",
      "a_b",
      "\x1b[1m",
      "\xC2\x85",
      "\xC3",
      "| a | b |\n|---|---|\n",
      "---\n",
      "https://x.y/z",
      "long text without any mark that goes on for quite a while, "};
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const size_t count = random() % 60;
    for (size_t i = 0; i < count; ++i) {
      const std::string& part = parts[random() % parts.size()];
      const size_t times = random() % 40 == 0 ? 250 : 1;
      for (size_t k = 0; k < times; ++k) text += part;
    }
    const MarkdownOptions options{.styles = round % 2 == 0, .columns = round % 3 == 0 ? 10 : 80};
    const std::string whole = Render(text, options);
    for (const size_t most : {size_t{1}, size_t{4}, size_t{100}}) {
      MarkdownStream stream(options);
      std::string out;
      for (size_t at = 0; at < text.size();) {
        const size_t size = 1 + random() % most;
        out += stream.Add(std::string_view(text).substr(at, size));
        at += size;
      }
      out += stream.End();
      ASSERT_EQ(out, whole) << ::testing::PrintToString(text);
    }
  }
}

}  // namespace
}  // namespace sluice::cli
