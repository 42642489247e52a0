#include "chat/chat_template.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice {
namespace {

// A limit in CPU seconds, which is far more than any of these tests takes. Without its work limit,
// a template would practically never end.
constexpr double kPatienceS = 120;
// Wrapped around an expression, these loops compute it ten billion times.
constexpr const char* kManyTimes = "{% for i in range(100000) %}{% for j in range(100000) %}{{ ";
constexpr const char* kManyTimesEnd = " }}{% endfor %}{% endfor %}";

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

// Without limits, each of these templates would run forever or use up the memory or the stack.
TEST(ChatTemplate, HostileTemplatesEndWithAnError) {
  const std::vector<std::string> sources = {
      "{{ 'a' * 10 ** 9 }}",
      "{{ [0] * 10 ** 9 }}",
      "{{ range(10 ** 9) | list }}",
      "{{ range(10 ** 30) }}",
      ("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ "
       "ns.x %}{% endfor %}"),
      ("{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% "
       "endfor %}"),
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      ("{% for i in range(100000) %}{% for j in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaa' "
       "}}{% "
       "endfor %}{% endfor %}"),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
      "{% macro m(f) %}{% call m(f) %}{% endcall %}{{ caller }}{% endmacro %}{{ m(1) }}",
      "{% for t in [[1]] recursive %}{{ loop([t]) }}{% endfor %}",
      ("{% set ns = namespace() %}{% set ns.x = [] %}{% for i in range(100000) %}{% set ns.x = "
       "[ns.x] %}{% endfor %}"),
      ("{% set ns = namespace() %}{% set ns.x = '' %}{% for i in range(100000) %}{% set ns.x = "
       "ns.x.upper %}{% endfor %}{{ ns.x.a }}"
       "{{ 1 / 0 }}"),
      ("{% set ns = namespace() %}{% set ns.x = [1] %}{% for i in range(99999) %}{% set ns.x = "
       "ns.x "
       "| map('string') %}{% endfor %}"
       "{{ ns.x | list }}"),
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
      ("{% set x = range(100000) | list %}{% for i in range(1000) %}{{ x == range(100000) | list "
       "}}{% endfor %}"),
      "{% set x = range(100000) | list %}{% for i in range(100000) %}{{ -1 in x }}{% endfor %}",
      "{% set x = 'a' * 10000000 %}{% for i in range(100000) %}{{ 'b' in x }}{% endfor %}",
      ("{% set x = range(100000) | list %}{% for i in range(100000) %}{{ x[1:] | length }}{% "
       "endfor "
       "%}"),
      ("{% set x = range(100000) | list %}{% for i in range(100000) %}{{ x | sort | first }}{% "
       "endfor %}"),
      ("{% set x = range(50000) | map('string') | join(',') %}{% for i in range(100000) %}{{ "
       "x.split(',') | length }}{% endfor %}"),
      ("{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% set y = 'a' * 100000 %}{% "
       "endfor %}{{ m() }}{{ 1 / 0 }}"),
      ("{% set ns = namespace() %}{% macro k(v) %}{% macro i() %}{{ v }}{% endmacro %}{% set ns.f "
       "= "
       "i %}{% endmacro %}"
       "{% for i in range(100000) %}{{ k('a' * 10000) }}{% endfor %}{{ 1 / 0 }}"),
  };
  for (const std::string& source : sources) {
    const std::clock_t start = std::clock();  // CPU time, so that other processes do not count
    const auto text = Render(source);
    const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_FALSE(text.has_value()) << source << " gave " << text->substr(0, 100);
    EXPECT_LT(spent, kPatienceS) << source;
  }
}

// Each expression does much work although it has few nodes. The work is counted where it is done.
// So the surrounding loop reaches the limit, and no single iteration takes long.
TEST(ChatTemplate, WorkIsCountedByTheBytesItTouches) {
  RenderOptions options;
  options.limits.max_steps = 2'000'000;
  const std::string setting =
      "{% set a = 'a' * 2000000 %}{% set b = 'a' * 2000000 %}{% set h = 'a' * 1000000 ~ 'c' %}"
      "{% set g = 'c' ~ 'a' * 1000000 %}{% set x = 10 ** 4200 %}{% set z = '&' * 1000000 %}"
      "{% set l = range(100000) | list %}{% set s = ('ab' * 5000) | list %}"
      "{% set n = namespace(**dict(range(4000) | map('string') | batch(2))) %}";
  for (const std::string expression : {
           "(a ~ 'b').find(h)",
           "a.find(h)",
           "a.rfind(g)",
           "h in a",
           "a.replace(h, '') | length",
           "a | replace(h, '') | length",
           "a.split(h) | length",
           "a.rsplit(g) | length",
           "a.count(h)",
           "a.partition(h) | length",
           "a.rpartition(g) | length",
           "a.strip('b' * 1000000) | length",
           "a.strip('b' * 1000000 ~ 'a') | length",
           "a | trim('b' * 1000000 ~ 'a') | length",
           "a.removeprefix(b) | length",
           "a.startswith((h,) * 100000)",
           "a.endswith((g,) * 100000)",
           "a == b",
           "[a] == [b]",
           "a < b",
           "a in [b]",
           "a is eq b",
           "{a: 1}[b]",
           "{1: 1}[a] is defined",
           "{(a, a): 1} | length",
           "none[a] is defined",
           "[a, b] | sort | length",
           "[a, b] | unique | list | length",
           "[a, b] | max | length",
           "[{'k': a}, {'k': b}] | groupby('k') | length",
           "z | striptags | length",
           "z | escape | length",
           "a.format() | length",
           "a.upper() | length",
           "a | title | length",
           "a.isalpha()",
           "a.islower()",
           "a | wordcount",
           "a | urlencode | length",
           "a.encode() | string | length",
           "a.encode().decode() | length",
           "a | int",
           "a | truncate(1000000) | length",
           "a.expandtabs() | length",
           "a.splitlines() | length",
           "a | indent | length",
           "a[::-1] | length",
           "('é' * 1000000)[999999:] | length",
           "('é' * 1000000)[999999]",
           "a | tojson | length",
           "[a] | string | length",
           "'%s' % a | length",
           "'%.1000f' % 1e300 | length",
           "x * x // x - x",
           "x | string | length",
           "'%d' % x | length",
           "x / 1e300 > 1",
           "('9' * 4200) | int > 1",
           "{x: 1} | length",
           "l | sum",
           "range(100000) | sum",
           "range(100000) | max",
           "l == range(100000) | list",
           "[1] | batch(500000, 0) | first | length",
           "l[::-1] | length",
           "s | map('default', *l) | first",
           "s | join | length",
           "n.absent is defined",
           "'{a}'.format(a=1, **dict(range(2000) | map('string') | batch(2)))",
       }) {
    const std::clock_t start = std::clock();  // CPU time, so that other processes do not count
    const auto text = Render(
        fmt::format("{}{}{}{}", setting, kManyTimes, expression, kManyTimesEnd), "{}", options);
    const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_FALSE(text.has_value()) << expression;
    EXPECT_LT(spent, kPatienceS) << expression;
  }
}

TEST(ChatTemplate, WorkOfFewNodesIsCounted) {
  // A macro with many unused variables.
  std::string macro = "{% macro m() %}{% if 0 %}";
  for (int i = 0; i < 15000; ++i)
    macro += "{% for i in [] %}{% set a" + std::to_string(i) + " = 1 %}{% endfor %}";
  macro += "{% endif %}{% endmacro %}";
  std::string dict = R"({"d":{"k":null)";
  for (int i = 0; i < 20000; ++i) dict += ",\"k" + std::to_string(i) + "\":null";
  for (const auto& [setting, expression] :
       {std::pair<std::string, std::string>{macro, "m()"}, {"", "d | xmlattr"}}) {
    const std::clock_t start = std::clock();
    EXPECT_FALSE(Render(fmt::format("{}{}{}{}", setting, kManyTimes, expression, kManyTimesEnd),
                        (dict + "}}").c_str())
                     .has_value());
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kPatienceS) << expression;
  }
}

TEST(ChatTemplate, KeysThatCollideAreCounted) {
  // The keys are multiples of usual sizes of hash tables.
  for (const char* step : {"85229", "1 * 2 ** 40", "172933"}) {
    const std::string source = "{{ dict(range(0, 100000 * " + std::string(step) + ", " + step +
                               ") | batch(2)) | length }}";
    const std::clock_t start = std::clock();
    const auto text = Render(source);
    ASSERT_TRUE(text.has_value()) << source << ": " << text.error().message;
    EXPECT_EQ(*text, "50000") << source;
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kPatienceS) << source;
  }
  // A tuple of 2^60 nested parts.
  EXPECT_FALSE(Render("{% set n = namespace(t=()) %}{% for i in range(60) %}"
                      "{% set n.t = (n.t, n.t) %}{% endfor %}{{ {n.t: 1} }}")
                   .has_value());
}

TEST(ChatTemplate, MemoryOfTextsIsCountedBeforeTheyAreMade) {
  for (const char* source : {
           "{{ [0] * 100000 | tojson(separators=['x' * 1000000, ':']) }}",
           "{{ {1: 1, 2: 2} | tojson(separators=[',', 'x' * 16000000]) }}",
           "{{ ([10 ** 4200] * 100000) | string }}",
           "{{ ([none] * 1000000) | string ~ ([none] * 1000000) | string ~ ([none] * 1000000) }}",
           "{{ ('\n' * 10000000).splitlines() }}",
           "{{ ('a' * 10000000).split('a') }}",
           "{% for i in ('a' * 10000000).encode() | map('abs') %}{{ loop.length }}{% endfor %}",
           "{{ ('a' * 10000000)[::-1] }}",
           "{{ 'a'.zfill(-9223372036854775808) ~ 1 / 0 }}",
       }) {
    EXPECT_FALSE(Render(source).has_value()) << source;
  }
}

// Each part of a text is counted once, not again with every later part.
TEST(ChatTemplate, LongTextsOfManyPartsAreMade) {
  for (const char* source : {
           "{{ (['abcdefgh'] * 200000) | tojson | length }}",
           "{{ ','.join(['abcdefgh'] * 200000) | length }}",
           "{{ (['abcdefgh'] * 200000) | join(',') | length }}",
           "{{ ('a' * 200000).replace('a', 'bcdefgh') | length }}",
           "{{ ('a' * 200000).replace('', 'bcdefgh') | length }}",
           "{{ ('%s' * 20000) % ((123456,) * 20000) }}",
           "{{ ('\t' * 200000).expandtabs() | length }}",
           "{{ ('a\n' * 200000) | indent(50) | length }}",
       }) {
    const auto text = Render(source);
    EXPECT_TRUE(text.has_value()) << source << ": " << text.error().message;
  }
}

TEST(ChatTemplate, EndsWhenItIsCancelled) {
  RenderOptions options;
  int asked = 0;
  options.is_cancelled = [&asked] { return ++asked == 3; };
  const auto text = Render(
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}"
      "{% endfor %}",
      "{}", options);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 3);
}

// Requests may contain templates, which are compiled for each request.
TEST(ChatTemplate, LongSourcesAreCompiledInLinearTime) {
  const auto repeat = [](int count, const std::function<std::string(const std::string&)>& part) {
    std::string out;
    for (int i = 0; i < count; ++i) out += part(std::to_string(i));
    return out;
  };
  const auto nested = [](const std::string& begin, const std::string& inside,
                         const std::string& end) {
    std::string out = inside;
    for (int i = 0; i < 90; ++i) out.insert(0, begin).append(end);
    return out;
  };
  const auto comma = [](const std::string& i) { return (i == "0" ? "a" : ",a") + i; };
  const auto sets = [](const std::string& i) { return "{% set a" + i + "=1%}"; };
  const std::function<std::string(int)> kinds[] = {
      [&](int n) { return "{% macro m(" + repeat(2 * n, comma) + ") %}{% endmacro %}"; },
      [&](int n) {
        return "{{ f(" + repeat(2 * n, [&](const std::string& i) { return comma(i) + "=1"; }) +
               ") }}";
      },
      [&](int n) { return nested("{% if x %}", repeat(n, sets), "{% endif %}"); },
      [&](int n) { return nested("{% for x in y %}", repeat(n, sets), "{% endfor %}"); },
      [&](int n) {
        return "{% if x %}" +
               repeat(n / 2,
                      [](const std::string& i) {
                        return "{% elif a" + i + "%}{% set b" + i + "=1 %}";
                      }) +
               "{% endif %}";
      }};
  const auto seconds = [](const std::string& source) {
    const std::clock_t start = std::clock();  // CPU time, so that other processes do not count
    (void)ChatTemplate::Compile(source);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  for (const auto& kind : kinds) {
    const double part = seconds(kind(5000));
    // This input is eight times as long as the previous one: linear time takes eight times as long,
    // quadratic time sixty-four times.
    EXPECT_LT(seconds(kind(40000)), 24 * std::max(part, 0.001)) << kind(10);
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
  // Cycles through namespaces, closures and loops; the sanitizer build's leak checker finds cycles
  // that remain.
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
