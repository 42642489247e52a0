#include "bench/sweep.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace sluice::bench {
namespace {

// The columns of the CSV file, which are also the members of a step in the JSON file.
std::vector<std::pair<std::string, double>> Figures(const SweepStep& step) {
  const Metrics& m = step.metrics;
  std::vector<std::pair<std::string, double>> figures = {
      {"num_prompts", static_cast<double>(step.num_prompts)},
      {"completed", static_cast<double>(m.completed)},
      {"failed", static_cast<double>(m.failed)},
      {"duration", m.duration},
      {"total_input_tokens", static_cast<double>(m.total_input)},
      {"total_output_tokens", static_cast<double>(m.total_output)},
      {"request_throughput", m.request_throughput},
      {"output_throughput", m.output_throughput},
      {"total_token_throughput", m.total_token_throughput},
      {"user_throughput", m.user_throughput}};
  for (Metric metric : kMetrics) {
    const std::string name(MetricName(metric));
    const Summary& summary = m.of(metric);
    figures.emplace_back("mean_" + name + "_ms", summary.mean);
    figures.emplace_back("median_" + name + "_ms", summary.median);
    figures.emplace_back("p99_" + name + "_ms",
                         summary.percentiles.empty() ? 0 : summary.percentiles[0]);
  }
  return figures;
}

std::string StepName(bool of_rates) {
  return of_rates ? "request_rate" : "max_concurrency";
}

// Returns a round number, about a fifth of `span`.
double TickOf(double span) {
  if (span <= 0) return 1;
  const double raw = span / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string EscapeXml(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string Sweep::TableHead(bool of_rates) {
  return fmt::format("{:>11} {:>8} {:>7} {:>9} {:>11} {:>11} {:>11} {:>11} {:>10} {:>10} {:>12}\n",
                     of_rates ? "req/s asked" : "concurrency", "requests", "failed", "req/s",
                     "out tok/s", "tok/s/user", "TTFT ms", "TTFT p99", "TPOT ms", "ITL p99",
                     "E2EL ms");
}

std::string Sweep::TableLine(const SweepStep& step) {
  const Metrics& m = step.metrics;
  const auto last = [](const Summary& summary) {
    return summary.percentiles.empty() ? 0 : summary.percentiles[0];
  };
  return fmt::format(
      "{:>11} {:>8} {:>7} {:>9.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>10.2f} {:>10.2f} "
      "{:>12.2f}\n",
      step.name, step.num_prompts, m.failed, m.request_throughput, m.output_throughput,
      m.user_throughput, m.ttft.mean, last(m.ttft), m.tpot.mean, last(m.itl), m.e2el.mean);
}

std::string Sweep::Csv() const {
  std::string text = StepName(of_rates);
  if (!steps.empty()) {
    for (const auto& [name, value] : Figures(steps[0])) text += "," + name;
  }
  text += '\n';
  for (const SweepStep& step : steps) {
    text += step.name;
    for (const auto& [name, value] : Figures(step)) text += fmt::format(",{}", value);
    text += '\n';
  }
  return text;
}

json::Value Sweep::Json() const {
  json::Value::Array list;
  for (const SweepStep& step : steps) {
    json::Value object{json::Value::Object{}};
    const auto number = json::Parse(step.name);
    object.Set(StepName(of_rates), number ? *number : json::Value(step.name));
    for (const auto& [name, value] : Figures(step)) {
      const bool count = name.starts_with("num_") || name.starts_with("total_input") ||
                         name.starts_with("total_output") || name == "completed" ||
                         name == "failed";
      object.Set(name, count ? json::Value(static_cast<int64_t>(value)) : json::Value(value));
    }
    list.push_back(std::move(object));
  }
  json::Value json{json::Value::Object{}};
  json.Set("date", date);
  json.Set("model_id", model);
  json.Set("steps", json::Value(std::move(list)));
  return json;
}

std::string Sweep::Svg() const {
  constexpr double kLeft = 80, kTop = 50, kWidth = 660, kHeight = 400;
  double most_x = 0, most_y = 0;
  for (const SweepStep& step : steps) {
    most_x = std::max(most_x, step.metrics.user_throughput);
    most_y = std::max(most_y, step.metrics.output_throughput);
  }
  const double tick_x = TickOf(most_x), tick_y = TickOf(most_y);
  const double range_x = tick_x * std::max(1.0, std::ceil(1.02 * most_x / tick_x));
  const double range_y = tick_y * std::max(1.0, std::ceil(1.02 * most_y / tick_y));
  const auto x = [&](double value) { return kLeft + kWidth * value / range_x; };
  const auto y = [&](double value) { return kTop + kHeight * (1 - value / range_y); };

  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 520\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"800\" height=\"520\" fill=\"white\"/>\n";
  svg += fmt::format(
      "<text x=\"410\" y=\"28\" text-anchor=\"middle\" font-size=\"16\">{}: throughput against "
      "the speed of one user</text>\n",
      EscapeXml(model));
  for (double value = 0; value <= range_x * 1.001; value += tick_x) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#ddd\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
        x(value), kTop, kTop + kHeight, kTop + kHeight + 18, value);
  }
  for (double value = 0; value <= range_y * 1.001; value += tick_y) {
    svg += fmt::format(
        "<line x1=\"{1}\" y1=\"{0:.1f}\" x2=\"{2}\" y2=\"{0:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
        y(value), kLeft, kLeft + kWidth, kLeft - 8, y(value) + 4, value);
  }
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">tokens/s of one user (mean over "
      "requests)</text>\n<text transform=\"translate(20 {}) rotate(-90)\" "
      "text-anchor=\"middle\">generated tokens/s of all</text>\n",
      kLeft + kWidth / 2, kTop + kHeight + 42, kTop + kHeight / 2);
  std::string line;
  for (const SweepStep& step : steps) {
    line += fmt::format("{:.1f},{:.1f} ", x(step.metrics.user_throughput),
                        y(step.metrics.output_throughput));
  }
  svg += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"2\"/>\n", line);
  for (const SweepStep& step : steps) {
    const double at_x = x(step.metrics.user_throughput), at_y = y(step.metrics.output_throughput);
    svg += fmt::format(
        "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"4\" fill=\"#1f77b4\"><title>{2} {3}: {4:.1f} "
        "tok/s, {5:.2f} tok/s a user</title></circle><text x=\"{6:.1f}\" "
        "y=\"{7:.1f}\">{3}</text>\n",
        at_x, at_y, of_rates ? "rate" : "concurrency", EscapeXml(step.name),
        step.metrics.output_throughput, step.metrics.user_throughput, at_x + 7, at_y - 6);
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::bench
