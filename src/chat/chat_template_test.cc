#include "chat/chat_template.h"

#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice {
namespace {

json::Value Variables(const char* text) {
  return json::Parse(text).value();
}

Result<std::string> Render(const std::string& source, const char* variables = "{}",
                           const RenderOptions& options = {}) {
  auto compiled = ChatTemplate::Compile(source);
  if (!compiled) return tl::unexpected<Error>(compiled.error());
  return compiled->Render(Variables(variables), options);
}

TEST(ChatTemplate, RendersALlama3StylePrompt) {
  const auto compiled = ChatTemplate::Compile(
      "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + "
      "'<|end_header_id|>\n\n' + "
      "m['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}");
  ASSERT_TRUE(compiled.has_value());
  EXPECT_EQ(compiled->variables(),
            (std::vector<std::string>{"add_generation_prompt", "bos_token", "messages"}));
  const auto text = compiled->Render(Variables(
      R"({"bos_token": "<B>", "messages": [{"role": "user", "content": " Hi "}], "add_generation_prompt": true})"));
  EXPECT_EQ(text.value(),
            "<B><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>"
            "assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, DetectsHowContentIsTaken) {
  using Format = ChatTemplate::ContentFormat;
  const auto format = [](const char* source) {
    return ChatTemplate::Compile(source).value().content_format();
  };
  EXPECT_EQ(format("{% for m in messages %}{{ m.content }}{% endfor %}"), Format::kString);
  EXPECT_EQ(
      format(
          "{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}"),
      Format::kParts);
  EXPECT_EQ(format("{% set l = messages[1:] %}{% for m in l %}{% for p in m.content | list %}{{ p "
                   "}}{% endfor %}{% endfor %}"),
            Format::kParts);
  EXPECT_EQ(format("{% for m in other %}{% for p in m.content %}{% endfor %}{% endfor %}"),
            Format::kString);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(ChatTemplate::Compile("a\n{% if %}", "x.jinja").error().message,
            "chat template x.jinja, line 2: Expected an expression, got 'end of statement block'");
  EXPECT_EQ(Render("a\n{{ none + 1 }}").error().message,
            "unsupported operand type(s) for +: 'NoneType' and 'int' (chat template, line 2)");
  EXPECT_EQ(Render("\n\n{{ raise_exception('as is') }}").error().message, "as is");
  EXPECT_EQ(Render("{{ 1 }}", "[]").error().code, ErrorCode::kInvalidArgument);
}

TEST(ChatTemplate, RefusesWhatItDoesNotDo) {
  for (const char* source :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
        "{% extends 'x' %}", "{% block a %}{% endblock %}",
        "{% autoescape true %}{% endautoescape %}"}) {
    const auto compiled = ChatTemplate::Compile(source);
    ASSERT_FALSE(compiled.has_value()) << source;
    EXPECT_NE(compiled.error().message.find("is not supported"), std::string::npos)
        << compiled.error().message;
  }
  EXPECT_FALSE(ChatTemplate::Compile("\xff").has_value());
  EXPECT_FALSE(ChatTemplate::Compile(std::string((size_t{1} << 20) + 1, 'a')).has_value());
}

TEST(ChatTemplate, ClockIsTheCallers) {
  RenderOptions options;
  options.now = std::chrono::local_days(std::chrono::January / 5 / 2024) + std::chrono::hours(3) +
                std::chrono::microseconds(7);
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y %H %f') }}", "{}", options).value(),
            "05 Jan 2024 03 000007");
  EXPECT_EQ(Render("{{ strftime_now('%Y') | length }}").value(), "4");
}

// Each of these would take for ever, or all memory, or the whole stack, without limits.
TEST(ChatTemplate, HostileTemplatesEndWithAnError) {
  const std::vector<std::string> sources = {
      "{{ 'a' * 10 ** 9 }}",
      "{{ [0] * 10 ** 9 }}",
      "{{ range(10 ** 9) | list }}",
      "{{ range(10 ** 30) }}",
      "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ "
      "ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaa' }}{% "
      "endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
      "{% macro m(f) %}{% call m(f) %}{% endcall %}{{ caller }}{% endmacro %}{{ m(1) }}",
      "{% for t in [[1]] recursive %}{{ loop([t]) }}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.x = [] %}{% for i in range(100000) %}{% set ns.x = "
      "[ns.x] %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.x = '' %}{% for i in range(100000) %}{% set ns.x = "
      "ns.x.upper %}{% endfor %}{{ ns.x.a }}"
      "{{ 1 / 0 }}",
      "{% set ns = namespace() %}{% set ns.x = [1] %}{% for i in range(99999) %}{% set ns.x = ns.x "
      "| map('string') %}{% endfor %}"
      "{{ ns.x | list }}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{{ 9 ** (9 ** 9) }}",
      "{{ 10 ** 4000 * 10 ** 4000 }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ '%.1000000000d' % 1 }}",
      "{{ 'a'.ljust(10 ** 12) }}",
      "{{ 'a'.zfill(10 ** 12) }}",
      "{{ 'a' | center(10 ** 12) }}",
      "{{ 'a' | indent(10 ** 12) }}",
      "{{ '\t'.expandtabs(10 ** 12) }}",
      "{{ [1] | batch(10 ** 12, 0) | list }}",
      "{{ [1] | slice(10 ** 12) | list }}",
      "{{ {'a': [[[[1]]]]} | tojson(indent=10 ** 9) }}",
      "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000) }}",
      "{{ ('ab' * 5000000) | list }}",
      "{{ ('a ' * 5000000).split() }}",
      "{{ (range(100000) | list | string) * 1000 }}",
      "{% set x = range(100000) | list %}{% for i in range(1000) %}{{ x == range(100000) | list "
      "}}{% endfor %}",
      "{% set x = range(100000) | list %}{% for i in range(100000) %}{{ -1 in x }}{% endfor %}",
      "{% set x = 'a' * 10000000 %}{% for i in range(100000) %}{{ 'b' in x }}{% endfor %}",
      "{% set x = range(100000) | list %}{% for i in range(100000) %}{{ x[1:] | length }}{% endfor "
      "%}",
      "{% set x = range(100000) | list %}{% for i in range(100000) %}{{ x | sort | first }}{% "
      "endfor %}",
      "{% set x = range(50000) | map('string') | join(',') %}{% for i in range(100000) %}{{ "
      "x.split(',') | length }}{% endfor %}",
      "{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% set y = 'a' * 100000 %}{% "
      "endfor %}{{ m() }}{{ 1 / 0 }}",
      "{% set ns = namespace() %}{% macro k(v) %}{% macro i() %}{{ v }}{% endmacro %}{% set ns.f = "
      "i %}{% endmacro %}"
      "{% for i in range(100000) %}{{ k('a' * 10000) }}{% endfor %}{{ 1 / 0 }}",
  };
  for (const std::string& source : sources) {
    const std::clock_t start = std::clock();  // CPU time: what else runs does not count
    const auto text = Render(source);
    const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_FALSE(text.has_value()) << source << " gave " << text->substr(0, 100);
    // Far above what it takes; a limit that does not bite takes for ever.
    EXPECT_LT(spent, 60) << source;
  }
}

TEST(ChatTemplate, DeepSourcesAreRefused) {
  const auto repeat = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  const int n = 20000;
  for (const std::string& source : {"{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}",
                                    "{{ " + repeat("[", n) + repeat("]", n) + " }}",
                                    "{{ " + repeat("not ", n) + "1 }}",
                                    "{{ " + repeat("-", n) + "1 }}",
                                    "{{ 1" + repeat(" + 1", n) + " }}",
                                    "{{ a" + repeat(".a", n) + " }}",
                                    "{{ a" + repeat("[0]", n) + " }}",
                                    "{{ a" + repeat("()", n) + " }}",
                                    "{{ a" + repeat("|e", n) + " }}",
                                    "{{ 1" + repeat(" if 1 else 1", n) + " }}",
                                    "{{ 1" + repeat(" and 1", n) + " }}",
                                    "{{ " + repeat("a if b else ", n) + "c }}",
                                    repeat("{% if 1 %}", n) + repeat("{% endif %}", n),
                                    repeat("{% for x in y %}", n),
                                    "{{ " + repeat("a(", n) + repeat(")", n) + " }}",
                                    "{{ " + repeat("{1:", n) + "}}",
                                    "{% set " + repeat("(", n) + "a" + repeat(")", n) + " = 1 %}",
                                    "{{ 1" + repeat(" is string", n) + "}}",
                                    "{{ 1" + repeat(" ** 1", n) + " }}",
                                    repeat("{% macro m() %}", n)}) {
    EXPECT_FALSE(ChatTemplate::Compile(source).has_value()) << source.substr(0, 40);
  }
  EXPECT_EQ(Render("{{ 'a'" + repeat(" ~ 'b'", 5000) + " }}").value().size(), 5001u);
  EXPECT_EQ(Render("{% if 0 %}" + repeat("{% elif 0 %}", 3000) + "{% else %}x{% endif %}").value(),
            "x");
}

TEST(ChatTemplate, MemoryIsGivenBack) {
  // Circles through namespaces, closures and loops; the leak checker of the sanitizer build looks
  // at what is left.
  const auto text = Render(
      "{% set ns = namespace() %}{% set ns.a = [ns] %}{% macro m() %}{{ ns.x }}{% endmacro %}{% "
      "set ns.m = m %}"
      "{% for i in [1, 2] %}{{ loop.changed([loop, ns]) }}{% set ns.l = loop %}{% endfor %}{{ ns.a "
      "| length }}");
  EXPECT_EQ(text.value(), "TrueFalse1");
}

TEST(ChatTemplate, RendersOnManyThreads) {
  const auto compiled = ChatTemplate::Compile(
                            "{% macro m(x) %}{{ x ~ 'c' }}{% endmacro %}{% for i in range(200) "
                            "%}{{ m('k' * (i % 3)) }}{% endfor %}{{ v }}")
                            .value();
  const std::string expected = compiled.Render(Variables(R"({"v": 5})")).value();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        wrong[static_cast<size_t>(t)] +=
            compiled.Render(Variables(R"({"v": 5})")).value() != expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace sluice
