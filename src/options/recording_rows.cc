#include "options/rows.h"

namespace sluice::options {
namespace {

void AddServeRows(std::vector<Option>& table) {
  Rows rows(table, "Recordings and receipts", kServe);
  rows.Text(
      "record", "",
      "Folder in which requests and the results of every step are recorded, so that `sluice "
      "replay` can compute them again. Only its owner can read the files. They contain prompts and "
      "answers, unless --record-privacy omits them, but never API keys or headers.",
      {.value = ValueKind::kFolder});
  rows.Size("record-size", "256MiB",
            "Maximum size of the files of --record; the oldest files are removed.",
            {.range = {1048576, 1e15}, .needs = "record"});
  rows.Choice("record-privacy", "none", "none|hashes",
              "What --record omits. hashes: request bodies, prompts and answers are replaced by "
              "their lengths and keyed hashes of blocks of 16 tokens. Such a recording can be "
              "sent to a server as load, but its steps cannot be computed again.",
              {.needs = "record"});
  rows.Text("receipts", "",
            "File of a private key (made by `sluice receipt-key FILE`). Each answer then has a "
            "receipt, signed with this key, that identifies the weights, the prompt and the "
            "parameters; `sluice verify` checks receipts.",
            {.value = ValueKind::kFile});
  rows.Flag("receipts-with-tokens",
            "Include the token ids of prompts and answers in receipts, so that receipts can be "
            "verified without the request.",
            {.needs = "receipts"});
}

void AddReplayRows(std::vector<Option>& table) {
  Rows rows(table, "Replay", kReplay);
  rows.Text("recording-run", "",
            "Name of the run to replay, or the beginning of its name; default: the newest run in "
            "the folder.",
            {.flag = "run"});
  rows.Flag("answers-only", "Compare only answers; the engine schedules the requests itself.");
  rows.Integer("until", "", "Stop after this number of steps and print the plan of the last one.",
               {.range = {1, 1e15}});
  rows.Flag("minimize",
            "If an answer differs or a step fails, find the smallest set of requests that still "
            "shows the fault.");
  rows.Integer("minimize-trials", "1000", "Maximum number of replays of --minimize.",
               {.range = {1, 1e9}, .needs = "minimize"});
  rows.Choice("replay-export", "", "mooncake|aiperf",
              "Write a trace of the requests to FILE instead of replaying them. aiperf includes "
              "the texts of prompts if the recording has them; this needs the model's tokenizer.",
              {.flag = "export"});
  rows.Number("replay-speed", "1",
              "With --url: factor by which requests are sent faster than recorded.",
              {.flag = "speed", .range = {0.001, 1e6}, .needs = "url"});
  rows.Text("replay-served-model", "",
            "With --url: model name in requests; default: the recorded name.",
            {.flag = "served-model", .needs = "url"});
  rows.Flag("replay-json", "Print the result as JSON.", {.flag = "json"});
}

void AddRecomputingRows(std::vector<Option>& table) {
  Rows rows(table, "Model", kReplay | kVerify);
  rows.Text("recorded-model", "",
            "Folder or id of the model that computes the answers again; default for replay: the "
            "recorded model folder.",
            {.flag = "model", .aliases = "-m", .value = ValueKind::kModel});
}

void AddVerifyRows(std::vector<Option>& table) {
  Rows rows(table, "Verify", kVerify);
  rows.Text("public-key", "",
            "File of the operator's public key. Without this option, the key in the receipt is "
            "used, which does not prove who signed the receipt.",
            {.value = ValueKind::kFile});
  rows.Text("receipt-request", "",
            "File of the request's JSON body, for a receipt without token ids.",
            {.flag = "request", .value = ValueKind::kFile});
}

}  // namespace

void AddRecordingRows(std::vector<Option>& table) {
  AddServeRows(table);
  AddRecomputingRows(table);
  AddReplayRows(table);
  AddVerifyRows(table);
}

}  // namespace sluice::options
