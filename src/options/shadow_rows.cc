#include "options/rows.h"

namespace sluice::options {

void AddShadowRows(std::vector<Option>& table) {
  Rows rows(table, "Shadow", kShadow);
  rows.Text("upstream", "",
            "Address of the server that answers requests: http://host:port, https://host:port or "
            "unix:///file. Requests are forwarded unchanged, including their API keys.");
  rows.Text("shadow-report", "shadow-report",
            "Folder for report.json and report.html, which are written every ten seconds and at "
            "the end. Only its owner can read them.",
            {.flag = "report", .value = ValueKind::kFolder});
  rows.Choice("report-privacy", "none", "none|texts",
              "What reports omit. texts: prompts and answers; otherwise, the report contains parts "
              "of the prompts and answers of the ten largest differences.");
  rows.Number("epsilon", "0.1",
              "Maximum difference of log probabilities, in nats, for which a different token "
              "counts as a tie.",
              {.range = {0, 10}});
  rows.Flag("float32-reference",
            "Load the model a second time in float32, as the reference that judges differences; "
            "otherwise, the compared model is its own reference.",
            {.default_value = "true"});
  rows.Flag("ask-upstream",
            "Request the upstream's prompt tokens (/tokenize), and its log probabilities if a "
            "token differs, with at most two small requests per answer. These requests use the key "
            "of --api-key, never a client's key.",
            {.default_value = "true"});
  rows.Flag("ask-token-ids",
            "Add return_token_ids to forwarded requests, so that answers need not be tokenized "
            "again; clients also receive the ids.");
  rows.Integer("shadow-queue", "1000",
               "Maximum number of answers that wait to be compared; further answers are dropped "
               "and counted.",
               {.flag = "queue", .range = {1, 1e6}});
  rows.Size("shadow-queue-bytes", "256MiB",
            "Maximum memory for waiting answers, and the same amount for copies of answers in "
            "progress; answers that do not fit are counted, but not compared.",
            {.flag = "queue-bytes", .range = {1048576, 1e13}});
  rows.Integer("shadow-workers", "4", "Number of answers that are compared at the same time.",
               {.flag = "workers", .range = {1, 256}});
  rows.Number(
      "shadow-patience", "60",
      "Seconds after SIGTERM or SIGINT in which forwarded requests and waiting comparisons may "
      "finish.",
      {.flag = "shutdown-timeout", .range = {0, 86400}});
}

}  // namespace sluice::options
