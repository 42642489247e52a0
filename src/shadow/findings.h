// The results of the comparisons: counts and the ten worst differences, as JSON and as an HTML
// page.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "shadow/judge.h"

namespace sluice::shadow {

// One compared answer.
struct Finding {
  Verdict verdict = Verdict::kEqual;
  std::string id;  // number of the request, counted from 1, and number of the choice
  std::string path;
  bool is_greedy = true;
  std::string evidence;  // the numbers on which the verdict is based
  std::string detail;    // what differs; may quote prompt and answer
  // A second finding: the verdict on the answer, if the prompt differs.
  std::optional<Verdict> answer;
  double gap = 0;      // difference of log probabilities, in nats
  std::string nearer;  // whose token the reference prefers: "upstream", "ours" or "" (neither)
  int64_t num_tokens = 0, num_departures = 0;
  std::string prompt, text;  // the ends of the prompt and of the answer; "" in private reports
};

// Facts about the run, for the head of the report.
struct RunFacts {
  std::string upstream, model, ours, reference;
  double epsilon = 0;
};

// Thread safety: all methods may be called from any thread.
class Findings {
 public:
  // `is_private`: the report quotes neither prompts nor answers.
  Findings(RunFacts facts, bool is_private) : facts_(std::move(facts)), is_private_(is_private) {}

  void Add(Finding finding);
  void AddDrawn(const DrawnSums& sums);
  // Adds a difference of log probabilities that the upstream returned with an answer.
  void AddLogprobDifference(double difference);
  // Counts an answer that was not judged.
  void NotJudged(const std::string& why);
  void Forwarded();  // counts a forwarded request of any kind
  // Counts a request for which the upstream could not be reached or closed the connection early.
  void Failed();
  void Dropped();  // counts an answer that was not compared because the queue was full

  json::Value Json() const;
  // Returns an HTML page without scripts and external resources.
  std::string Page() const;
  // Returns, for example, "judged 500: equal 490, tie 10; not judged 3; dropped 0".
  std::string Line() const;
  int64_t count(Verdict verdict) const;

 private:
  struct Counts {
    std::array<int64_t, kNumVerdicts> verdicts{};
    int64_t judged = 0, forwarded = 0, failed = 0, dropped = 0, not_judged = 0, tokens = 0;
  };

  const RunFacts facts_;
  const bool is_private_;
  mutable Mutex mutex_;
  Counts counts_ GUARDED_BY(mutex_);
  std::map<std::string, int64_t> why_not_ GUARDED_BY(mutex_);
  DrawnSums drawn_ GUARDED_BY(mutex_);
  std::optional<double> logprob_difference_ GUARDED_BY(mutex_);
  std::vector<Finding> worst_ GUARDED_BY(mutex_);  // at most ten, the worst first
};

}  // namespace sluice::shadow
