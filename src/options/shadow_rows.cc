#include "options/rows.h"

namespace sluice::options {

void AddShadowRows(std::vector<Option>& table) {
  Rows rows(table, "Shadow", kShadow);
  rows.Text("upstream", "",
            "Address of the server that answers: http://host:port, https://host:port or "
            "unix:///file. Requests go there as they are, with their keys.");
  rows.Text("shadow-report", "shadow-report",
            "Folder of report.json and report.html, which are written every ten seconds and at "
            "the end; readable by its owner only.",
            {.flag = "report", .value = ValueKind::kFolder});
  rows.Choice("report-privacy", "none", "none|texts",
              "What reports leave out; texts: prompts and answers, of which the ten worst are "
              "quoted otherwise.");
  rows.Number("epsilon", "0.1",
              "Difference of log probabilities, in nats, up to which another token is a tie.",
              {.range = {0, 10}});
  rows.Flag("float32-reference",
            "Load the model a second time in float32, which decides what a difference is; without "
            "it, the model that is compared decides itself.",
            {.default_value = "true"});
  rows.Flag("ask-upstream",
            "Ask the upstream how it makes prompts (/tokenize), and for its log probabilities "
            "where a token differs: at most two small requests for an answer. The key is that of "
            "--api-key, never a client's.",
            {.default_value = "true"});
  rows.Flag("ask-token-ids",
            "Add return_token_ids to forwarded requests, so that answers need not be tokenized "
            "again; clients see the ids, too.");
  rows.Integer("shadow-queue", "1000",
               "Most answers that wait to be compared; further ones are dropped, and counted.",
               {.flag = "queue", .range = {1, 1e6}});
  rows.Size("shadow-queue-bytes", "256MiB",
            "Most memory of the answers that wait, and as much again of copies of those under way; "
            "others are not judged, and counted.",
            {.flag = "queue-bytes", .range = {1048576, 1e13}});
  rows.Integer("shadow-workers", "4", "Answers that are compared at a time.",
               {.flag = "workers", .range = {1, 256}});
  rows.Number("shadow-patience", "60",
              "Seconds after SIGTERM or SIGINT for what is forwarded and waits to be compared.",
              {.flag = "shutdown-timeout", .range = {0, 86400}});
}

}  // namespace sluice::options
