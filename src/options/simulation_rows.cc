#include "options/rows.h"

namespace sluice::options {

void AddSimulationRows(std::vector<Option>& table) {
  Rows serve(table, "Simulation", kServe);
  serve.Text("simulate", "",
             "Simulate a server with these devices, without loading or computing a model: steps "
             "take the predicted time, and the text of answers is meaningless. The value is the "
             "name of a device in docs/simulation.md and the number of devices, such as H200x8, or "
             "a .yaml file that describes a device, such as my.yaml or my.yamlx8.");
  serve.Number("simulate-speed", "1", "Factor by which steps are shorter than predicted.",
               {.range = {1e-3, 1e6}, .needs = "simulate"});
  serve.Integer("simulate-output-len", "0",
                "Average number of tokens after which answers end; 0: answers end only at "
                "max_tokens, at a stop string or token, or where a constraint allows it.",
                {.range = {0, 1e9}, .needs = "simulate"});

  Rows plan(table, "Plan", kPlan);
  plan.Text("trace", "",
            "File with requests: JSON lines with timestamp (ms), input_length, output_length and "
            "optionally hash_ids (Mooncake's format), or a ShareGPT file.",
            {.value = ValueKind::kFile});
  plan.Text("slo", "",
            "Service level: maximum TTFT and TPOT in seconds, such as ttft=0.5,tpot=0.03, or only "
            "one of them.");
  plan.Number("slo-share", "0.9", "Share of the requests that must meet the service level.",
              {.range = {0.01, 1}});
  plan.List(
      "price", "",
      "Prices of devices per hour, such as H200=3.5. Devices without a price are listed last.");
  plan.List("devices", "", "Devices to try, or .yaml files that describe them. Default: all.");
  plan.Integer("max-devices", "8", "Maximum number of devices in a deployment.",
               {.range = {1, 256}});
  plan.List("quantizations", "",
            "Formats of the weights to try: checkpoint, or formats of --quantization of serve for "
            "unquantized weights (fp8, mxfp4 and others). Default: checkpoint, and fp8 if the "
            "weights are unquantized.");
  plan.Number("trace-rate", "",
              "Requests per second, instead of the times of the trace; needed for a ShareGPT file.",
              {.flag = "request-rate", .range = {1e-6, 1e9}});
  plan.Integer("trace-requests", "1000", "Maximum number of requests taken from the trace.",
               {.flag = "num-prompts", .range = {1, 1e7}});
  plan.Integer("plan-rows", "20", "Maximum number of rows to print.",
               {.flag = "rows", .range = {1, 1e6}});

  Rows fit(table, "Fit", kFit);
  fit.Text("like", "",
           "The measured device, or a .yaml file that describes it. It provides the memory, "
           "bandwidths and rates, and the factors that the measurements do not determine.");
  fit.Text("fit-model", "",
           "Folder of the model (config.json) that was measured by bench serve. Not needed for "
           "FILE.csv, which contains the name of the model.",
           {.flag = "model", .value = ValueKind::kFolder});
  fit.Integer("fit-tensor-parallel-size", "1", "Tensor parallel size of the measured server.",
              {.flag = "tensor-parallel-size", .range = {1, 256}});
  fit.Text("fit-name", "", "Name of the device in the description. Default: the name in --like.",
           {.flag = "name"});
  fit.Text("fit-output", "", "The file to write. Default: standard output.",
           {.flag = "output", .value = ValueKind::kFile});
}

}  // namespace sluice::options
