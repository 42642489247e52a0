#include "shadow/findings.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/html_text.h"

namespace sluice::shadow {
namespace {

constexpr size_t kMostWorst = 10;
constexpr size_t kMostReasons = 100;

bool IsWorse(const Finding& a, const Finding& b) {
  if (a.verdict != b.verdict) return a.verdict > b.verdict;
  return a.gap > b.gap;
}

std::string Escaped(std::string_view text) {
  std::string out;
  AppendHtmlText(out, text);
  return out;
}

json::Value JsonOf(const Finding& finding) {
  json::Value value{json::Value::Object{}};
  value.Set("verdict", VerdictName(finding.verdict));
  value.Set("id", finding.id);
  value.Set("path", finding.path);
  value.Set("greedy", finding.is_greedy);
  value.Set("evidence", finding.evidence);
  value.Set("detail", finding.detail);
  if (finding.answer) value.Set("answer", VerdictName(*finding.answer));
  value.Set("gap_nats", finding.gap);
  if (!finding.nearer.empty()) value.Set("nearer_to_reference", finding.nearer);
  value.Set("tokens", finding.num_tokens);
  value.Set("departures", finding.num_departures);
  if (!finding.prompt.empty()) value.Set("prompt_end", finding.prompt);
  if (!finding.text.empty()) value.Set("answer_text", finding.text);
  return value;
}

void AppendRow(std::string& page, std::string_view name, std::string_view value) {
  page += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", Escaped(name), Escaped(value));
}

void AppendFinding(std::string& page, const Finding& finding) {
  page += fmt::format(
      "<tr><td class=\"{0}\">{0}</td><td>{1}</td><td>{2}</td><td>{3:.4f}</td><td>{4}</td>"
      "<td>{5}</td><td><pre>{6}</pre></td><td><pre>{7}</pre></td></tr>\n",
      VerdictName(finding.verdict), Escaped(finding.id), Escaped(finding.path), finding.gap,
      Escaped(finding.nearer), Escaped(finding.evidence + ": " + finding.detail),
      Escaped(finding.prompt), Escaped(finding.text));
}

constexpr std::string_view kStyle =
    "body{font:16px/1.5 sans-serif;margin:2em;max-width:80em}"
    "table{border-collapse:collapse;margin:1em 0}th,td{border:1px solid #999;padding:.3em .6em;"
    "text-align:left;vertical-align:top}pre{margin:0;white-space:pre-wrap;max-width:24em}"
    ".real{background:#fbb}.sampling{background:#fda}.tokenizer,.template{background:#ffc}";

}  // namespace

void Findings::Add(Finding finding) {
  if (is_private_) {
    finding.prompt.clear();
    finding.text.clear();
    finding.detail.clear();
  }
  const MutexLock lock(mutex_);
  ++counts_.judged;
  ++counts_.verdicts[static_cast<size_t>(finding.verdict)];
  counts_.tokens += finding.num_tokens;
  if (finding.verdict == Verdict::kEqual) return;
  const auto place = std::upper_bound(worst_.begin(), worst_.end(), finding, IsWorse);
  worst_.insert(place, std::move(finding));
  if (worst_.size() > kMostWorst) worst_.pop_back();
}

void Findings::AddDrawn(const DrawnSums& sums) {
  const MutexLock lock(mutex_);
  drawn_.excess += sums.excess;
  drawn_.variance += sums.variance;
  drawn_.tokens += sums.tokens;
}

void Findings::AddLogprobDifference(double difference) {
  const MutexLock lock(mutex_);
  logprob_difference_ = std::max(logprob_difference_.value_or(0), difference);
}

void Findings::NotJudged(const std::string& why) {
  const MutexLock lock(mutex_);
  ++counts_.not_judged;
  const bool is_new = why_not_.find(why) == why_not_.end();
  ++why_not_[is_new && why_not_.size() >= kMostReasons ? "other reasons" : why];
}

void Findings::Forwarded() {
  const MutexLock lock(mutex_);
  ++counts_.forwarded;
}

void Findings::Failed() {
  const MutexLock lock(mutex_);
  ++counts_.failed;
}

void Findings::Dropped() {
  const MutexLock lock(mutex_);
  ++counts_.dropped;
}

int64_t Findings::count(Verdict verdict) const {
  const MutexLock lock(mutex_);
  return counts_.verdicts[static_cast<size_t>(verdict)];
}

std::string Findings::Line() const {
  const MutexLock lock(mutex_);
  std::string line = fmt::format("judged {}:", counts_.judged);
  for (int i = 0; i < kNumVerdicts; ++i) {
    line += fmt::format("{} {} {}", i == 0 ? "" : ",", VerdictName(static_cast<Verdict>(i)),
                        counts_.verdicts[static_cast<size_t>(i)]);
  }
  line += fmt::format("; not judged {}, dropped {}", counts_.not_judged, counts_.dropped);
  return line;
}

json::Value Findings::Json() const {
  const MutexLock lock(mutex_);
  json::Value report{json::Value::Object{}};
  report.Set("version", 1);
  report.Set("upstream", facts_.upstream);
  report.Set("model", facts_.model);
  report.Set("ours", facts_.ours);
  report.Set("reference", facts_.reference);
  report.Set("epsilon_nats", facts_.epsilon);
  report.Set("forwarded", counts_.forwarded);
  report.Set("failed", counts_.failed);
  report.Set("judged", counts_.judged);
  report.Set("tokens", counts_.tokens);
  report.Set("dropped", counts_.dropped);
  json::Value verdicts{json::Value::Object{}};
  for (int i = 0; i < kNumVerdicts; ++i)
    verdicts.Set(VerdictName(static_cast<Verdict>(i)), counts_.verdicts[static_cast<size_t>(i)]);
  report.Set("verdicts", std::move(verdicts));
  json::Value why{json::Value::Object{}};
  for (const auto& [reason, count] : why_not_) why.Set(reason, count);
  report.Set("not_judged", std::move(why));
  json::Value drawn{json::Value::Object{}};
  drawn.Set("tokens", drawn_.tokens);
  drawn.Set("excess_nats", drawn_.excess);
  drawn.Set("deviations", drawn_.Deviation());
  report.Set("sampled_answers", std::move(drawn));
  if (logprob_difference_) report.Set("largest_logprob_difference", *logprob_difference_);
  json::Value::Array worst;
  for (const Finding& finding : worst_) worst.push_back(JsonOf(finding));
  report.Set("worst", std::move(worst));
  return report;
}

std::string Findings::Page() const {
  const MutexLock lock(mutex_);
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sluice "
      "shadow</title>"
      "<style>{}</style></head><body>\n<h1>sluice shadow</h1>\n<table>\n",
      kStyle);
  AppendRow(page, "upstream", facts_.upstream);
  AppendRow(page, "model", facts_.model);
  AppendRow(page, "ours", facts_.ours);
  AppendRow(page, "reference", facts_.reference);
  AppendRow(page, "epsilon", fmt::format("{:g} nats", facts_.epsilon));
  AppendRow(page, "forwarded", fmt::format("{}, {} failed", counts_.forwarded, counts_.failed));
  AppendRow(page, "judged", fmt::format("{} answers, {} tokens", counts_.judged, counts_.tokens));
  AppendRow(page, "dropped", fmt::format("{}", counts_.dropped));
  if (drawn_.tokens > 0) {
    AppendRow(page, "sampled tokens",
              fmt::format("{}; less likely than expected by {:+.2f} nats, {:+.2f} deviations",
                          drawn_.tokens, drawn_.excess, drawn_.Deviation()));
  }
  if (logprob_difference_)
    AppendRow(page, "largest difference of log probabilities",
              fmt::format("{:.4f} nats", *logprob_difference_));
  page += "</table>\n<h2>Verdicts</h2>\n<table>\n";
  for (int i = 0; i < kNumVerdicts; ++i) {
    AppendRow(page, VerdictName(static_cast<Verdict>(i)),
              fmt::format("{}", counts_.verdicts[static_cast<size_t>(i)]));
  }
  for (const auto& [reason, count] : why_not_)
    AppendRow(page, "not judged: " + reason, fmt::format("{}", count));
  page +=
      "</table>\n<h2>The worst</h2>\n<table>\n<tr><th>verdict</th><th>request</th><th>path</th>"
      "<th>gap, nats</th><th>reference prefers</th><th>evidence</th><th>end of the prompt</th>"
      "<th>answer</th></tr>\n";
  for (const Finding& finding : worst_) AppendFinding(page, finding);
  page += "</table>\n</body></html>\n";
  return page;
}

}  // namespace sluice::shadow
