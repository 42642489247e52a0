#include "options/rows.h"

namespace sluice::options {
namespace {

void AddTargetRows(std::vector<Option>& table) {
  Rows rows(table, "Server under load", kLoad);
  rows.Text("bench-backend", "openai",
            "Route that receives the requests: /v1/completions for openai, openai-comp, "
            "openai-completions and vllm; /v1/chat/completions for openai-chat.",
            {.flag = "backend", .aliases = "--endpoint-type"});
  rows.Text("base-url", "",
            "Server as http://host:port, https://host:port or unix:///file, instead of --host and "
            "--port.",
            {.aliases = "--url"});
  rows.Text("bench-host", "127.0.0.1", "Host of the server.", {.flag = "host"});
  rows.Integer("bench-port", "8000", "Port of the server.", {.flag = "port", .range = {1, 65535}});
  rows.Text("endpoint", "", "Path to which requests are posted; default: the path of --backend.");
  rows.List("header", "", "Headers of every request, as KEY=VALUE.");
  rows.Text("bench-model", "",
            "Model name in requests, and folder or cached model id of the tokenizer; default: the "
            "first model that the server lists. If no tokenizer is found, tokens are counted by "
            "the server's /tokenize.",
            {.flag = "model", .aliases = "-m", .value = ValueKind::kModel});
  rows.Text("bench-served-model-name", "", "Model name to send if it differs from --model.",
            {.flag = "served-model-name"});
  rows.Text("bench-tokenizer", "",
            "Folder or cached model id of the tokenizer that generates prompts; default: --model.",
            {.flag = "tokenizer", .value = ValueKind::kModel});
  rows.Flag("bench-skip-tokenizer-init",
            "Use no tokenizer; only for data sets with texts. If the server does not report an "
            "answer's number of tokens, the answer counts as 1 token.",
            {.flag = "skip-tokenizer-init"});
  rows.List("bench-lora-modules", "",
            "Names of adapters; each request names one of them as its model.",
            {.flag = "lora-modules"});
  rows.Choice("lora-assignment", "random", "random|round-robin",
              "How --lora-modules are assigned to requests.");
  rows.Text("request-id-prefix", "",
            "Prefix of x-request-id; default: bench- and eight random hexadecimal digits.");
  rows.Integer("ready-check-timeout-sec", "0",
               "Maximum number of seconds to wait for the server: a test request is sent every 5 s "
               "until one succeeds; 0: do not wait.",
               {.range = {0, 1e6}});
  rows.Flag("test-input", "Send one request before measuring, and stop if it fails.",
            {.trtllm_default = "true"});
  rows.Flag("profile", "Post to /start_profile before and to /stop_profile after the load.");
}

void AddTrafficRows(std::vector<Option>& table) {
  Rows rows(table, "Load", kLoad);
  rows.Integer(
      "bench-num-prompts", "1000",
      "Number of requests. In a sweep: requests per step, by default five times its concurrency.",
      {.flag = "num-prompts", .range = {1, 1e8}, .aliases = "--num-prompt"});
  rows.Number("request-rate", "inf",
              "Requests per second; inf sends all requests at the same time.",
              {.commands = kBenchServe, .words = "inf|Infinity|infinity", .range = {1e-06, 1e9}});
  rows.Number("burstiness", "1.0",
              "Shape of the gamma distribution of intervals: 1 is a Poisson process; smaller "
              "values are burstier, larger values more even; inf is a constant interval.",
              {.words = "inf|Infinity|infinity", .range = {1e-06, 1e9}});
  rows.Integer("max-concurrency", "",
               "Maximum number of concurrent requests; further requests wait, and their waiting "
               "time is reported only in queue_times.",
               {.commands = kBenchServe, .range = {1, 1e6}});
  rows.Choice("ramp-up-strategy", "", "linear|exponential",
              "Change the rate from --ramp-up-start-rps to --ramp-up-end-rps.",
              {.commands = kBenchServe});
  rows.Integer("ramp-up-start-rps", "", "Requests per second at the start of a ramp.",
               {.commands = kBenchServe, .range = {1, 1e9}});
  rows.Integer("ramp-up-end-rps", "", "Requests per second at the end of a ramp.",
               {.commands = kBenchServe, .range = {1, 1e9}});
  rows.Integer("num-warmups", "0", "Number of warm-up requests before the measured ones.",
               {.range = {0, 1e6}});
  rows.Integer("bench-seed", "0",
               "Seed for prompts and arrival times; with the same seed, vLLM's tool sends the same "
               "requests.",
               {.flag = "seed", .range = {0, 4294967295.0}});
  rows.Flag("disable-shuffle", "Keep the order of the data file.");
  rows.Flag("no-oversample", "Do not repeat prompts if the file has fewer than --num-prompts.");
  rows.Flag("disable-tqdm", "Do not show a progress bar.");
}

void AddBodyRows(std::vector<Option>& table) {
  Rows rows(table, "Requests", kLoad);
  rows.Flag("ignore-eos",
            "Generate every answer to its full length; always true with --dataset-name random.");
  rows.Flag("no-stream",
            "Request answers without streaming; the time to the first token is then the time to "
            "the last token.",
            {.aliases = "--non-streaming"});
  rows.Integer("bench-logprobs", "", "Request the logprobs of this many tokens at each position.",
               {.flag = "logprobs", .range = {0, 1000}});
  rows.Number("bench-temperature", "",
              "Temperature of every request. Default: the server's own default; under the name "
              "trtllm-serve: 0.",
              {.flag = "temperature"});
  rows.Number("bench-top-p", "", "top_p of every request; default: the server's own default.",
              {.flag = "top-p"});
  rows.Integer("bench-top-k", "", "top_k of every request; default: the server's own default.",
               {.flag = "top-k"});
  rows.Number("bench-min-p", "", "min_p of every request; default: the server's own default.",
              {.flag = "min-p"});
  rows.Number("bench-frequency-penalty", "",
              "frequency_penalty of every request; default: the server's own default.",
              {.flag = "frequency-penalty"});
  rows.Number("bench-presence-penalty", "",
              "presence_penalty of every request; default: the server's own default.",
              {.flag = "presence-penalty"});
  rows.Number("bench-repetition-penalty", "", "repetition_penalty of every request; default: 1.",
              {.flag = "repetition-penalty"});
  rows.Flag("bench-use-beam-search", "Request beam search.", {.flag = "use-beam-search"});
  rows.Json("extra-body", "", "Additional fields of every request, as a JSON object.");
  rows.Json("bench-chat-template-kwargs", "",
            "chat_template_kwargs of every request of openai-chat.",
            {.flag = "chat-template-kwargs"});
}

void AddDatasetRows(std::vector<Option>& table) {
  Rows rows(table, "Data set", kLoad);
  rows.Text("dataset-name", "random",
            "random: random tokens of the vocabulary; random-mm: random tokens and images; "
            "sharegpt: the first questions of a file of conversations; custom: lines {\"prompt\": "
            "..., \"output_tokens\": N}; custom_image: custom with \"image_files\": [path or URL, "
            "...]; sonnet: lines of verse with a common prefix; prefix_repetition: a few prefixes "
            "with many suffixes.",
            {.trtllm_default = "sharegpt"});
  rows.Text("dataset-path", "", "File of the data set.", {.value = ValueKind::kFile});
  rows.Integer("bench-input-len", "",
               "Number of prompt tokens, for all data sets with an option for it.",
               {.flag = "input-len", .range = {1, 1e7}});
  rows.Integer("bench-output-len", "",
               "Number of answer tokens, for all data sets with an option for it.",
               {.flag = "output-len", .range = {1, 1e7}});
  rows.Integer("random-input-len", "1024", "Tokens of each random prompt.", {.range = {1, 1e7}});
  rows.Integer("random-output-len", "128", "Number of tokens of each answer to a random prompt.",
               {.range = {1, 1e7}});
  rows.Text("random-range-ratio", "0.0",
            "Lengths are drawn from [len * (1 - r), len * (1 + r)]. The value is r, a number below "
            "1, or {\"input\": r, \"output\": r}.");
  rows.Integer("random-prefix-len", "0",
               "Number of tokens of a common prefix, in addition to --random-input-len.",
               {.range = {0, 1e7}});
  rows.Integer("random-mm-base-items-per-request", "1",
               "Number of images in each request of random-mm.", {.range = {0, 1000}});
  rows.Number("random-mm-num-mm-items-range-ratio", "0.0",
              "The number of images is drawn from [n * (1 - r), n * (1 + r)].", {.range = {0, 1}});
  rows.Json("random-mm-limit-mm-per-prompt", R"({"image": 255})",
            "Maximum number of images of a request.");
  rows.Text("random-mm-bucket-config", "{(256, 256, 1): 0.5, (720, 1280, 1): 0.5}",
            "Sizes of images and the share of each: (height, width, 1): share.");
  rows.Flag("random-ids",
            "Generate random prompts from token ids; always true without --dataset-path.");
  rows.Flag("tokenize-on-client", "Send prompts as lists of token ids.");
  rows.Integer("sharegpt-output-len", "",
               "Number of tokens of each answer; default: as many as the answer in the file has.",
               {.range = {1, 1e7}});
  rows.Integer("custom-output-len", "256",
               "Number of tokens of each answer to a custom prompt; -1: output_tokens of the line.",
               {.range = {-1, 1e7}});
  rows.Integer("sonnet-input-len", "550", "Maximum number of tokens of each sonnet prompt.",
               {.range = {1, 1e7}});
  rows.Integer("sonnet-output-len", "150", "Number of tokens of each answer to a sonnet prompt.",
               {.range = {1, 1e7}});
  rows.Integer("sonnet-prefix-len", "200",
               "Number of tokens of the prefix that all sonnet prompts share.",
               {.range = {0, 1e7}});
  rows.Integer("prefix-repetition-prefix-len", "256", "Tokens of each prefix.",
               {.range = {1, 1e7}});
  rows.Integer("prefix-repetition-suffix-len", "256", "Tokens of each suffix.",
               {.range = {1, 1e7}});
  rows.Integer("prefix-repetition-num-prefixes", "10", "Number of prefixes.", {.range = {1, 1e7}});
  rows.Integer("prefix-repetition-output-len", "128", "Number of tokens of each answer.",
               {.range = {1, 1e7}});
  rows.Flag("skip-chat-template",
            "Send custom prompts without applying the model's chat template. With openai-chat, the "
            "server always applies it.");
}

void AddResultRows(std::vector<Option>& table) {
  Rows rows(table, "Result", kLoad);
  rows.Text("percentile-metrics", "ttft,tpot,itl,e2el",
            "Comma-separated times to report: ttft, tpot, itl, e2el; e2el is always reported.");
  rows.Text("metric-percentiles", "99", "Comma-separated percentiles of these times: 50,90,99.9.");
  rows.List("goodput", "",
            "Upper bounds in milliseconds; requests within all bounds count as good: ttft:200 "
            "tpot:50 e2el:5000.");
  rows.Flag("save-result", "Write the results to a JSON file.");
  rows.Flag("save-detailed", "Also write the results of every request.");
  rows.Flag("append-result", "Append the result to the file as a new line.",
            {.commands = kBenchServe});
  rows.Text("result-dir", "",
            "Folder of the result file, created if missing; default: the current folder.",
            {.value = ValueKind::kFolder});
  rows.Text("result-filename", "",
            "Name of the result file; default: composed of backend, rate, concurrency, model and "
            "time. In a sweep: prefix of the file names.");
  rows.List("metadata", "", "Additional fields of the result, as KEY=VALUE.");
  rows.Text("label", "",
            "Name of the run in the result; in the file name, it replaces the backend.");
  rows.List("concurrencies", "",
            "Concurrencies that form the steps of a sweep; default without --request-rates: 1 2 4 "
            "8 16 32 64 128 256.",
            {.commands = kBenchSweep, .aliases = "--max-concurrency"});
  rows.List("request-rates", "",
            "Request rates per second that form the steps of a sweep, instead of --concurrencies.",
            {.commands = kBenchSweep, .aliases = "--request-rate"});
}

}  // namespace

void AddBenchRows(std::vector<Option>& table) {
  AddTargetRows(table);
  AddTrafficRows(table);
  AddBodyRows(table);
  AddDatasetRows(table);
  AddResultRows(table);
}

}  // namespace sluice::options
