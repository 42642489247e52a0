#include "options/rows.h"

namespace sluice::options {

void AddSimulationRows(std::vector<Option>& table) {
  Rows serve(table, "Simulation", kServe);
  serve.Text(
      "simulate", "",
      "Serve as on these devices, without computing or loading anything: steps take the time "
      "that they would take there, and the text of answers means nothing. A device of "
      "docs/simulation.md with their number, as in H200x8, or a .yaml file that describes "
      "one, as in my.yaml or my.yamlx8.");
  serve.Number("simulate-speed", "1", "Steps take so much less time than on the devices.",
               {.range = {1e-3, 1e6}, .needs = "simulate"});
  serve.Integer("simulate-output-len", "0",
                "Answers end by themselves after this number of tokens on average; 0: only at "
                "max_tokens, or where a constraint lets them end.",
                {.range = {0, 1e9}, .needs = "simulate"});

  Rows plan(table, "Plan", kPlan);
  plan.Text("trace", "",
            "File of requests: lines of JSON with timestamp (ms), input_length, output_length and "
            "perhaps hash_ids (Mooncake's format), or a ShareGPT file.",
            {.value = ValueKind::kFile});
  plan.Text("slo", "", "What requests must keep, in seconds: ttft=0.5,tpot=0.03, or one of them.");
  plan.Number("slo-share", "0.9", "Share of the requests that must keep it.", {.range = {0.01, 1}});
  plan.List("price", "",
            "Prices of devices per hour: H200=3.5. Devices without a price cost 1, and are listed "
            "after those with one.");
  plan.List("devices", "", "Devices to try, or .yaml files that describe them. Default: all.");
  plan.Integer("max-devices", "8", "Most devices of one kind.", {.range = {1, 256}});
  plan.List(
      "quantizations", "",
      "Formats of the weights to try: checkpoint, or those that --quantization of serve makes "
      "of plain weights (fp8, mxfp4 and others). Default: checkpoint, and fp8 where the "
      "weights are plain.");
  plan.Number("trace-rate", "",
              "Requests per second, instead of the times of the trace; needed for a ShareGPT file.",
              {.flag = "request-rate", .range = {1e-6, 1e9}});
  plan.Integer("trace-requests", "1000", "Most requests that are taken from the trace.",
               {.flag = "num-prompts", .range = {1, 1e7}});
  plan.Integer("plan-rows", "20", "Most rows that are printed.",
               {.flag = "rows", .range = {1, 1e6}});

  Rows fit(table, "Fit", kFit);
  fit.Text("like", "",
           "The device that was measured, or a .yaml file that describes it: its figures, and the "
           "factors that the files do not determine.");
  fit.Text("fit-model", "",
           "Folder of the model (config.json) that bench serve has measured; tables say it.",
           {.flag = "model", .value = ValueKind::kFolder});
  fit.Integer("fit-tensor-parallel-size", "1", "Devices that shared each of its layers.",
              {.flag = "tensor-parallel-size", .range = {1, 256}});
  fit.Text("fit-name", "", "Name of the device in the description. Default: that of --like.",
           {.flag = "name"});
  fit.Text("fit-output", "", "The file to write. Default: standard output.",
           {.flag = "output", .value = ValueKind::kFile});
}

}  // namespace sluice::options
