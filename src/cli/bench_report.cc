#include "cli/bench_report.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace sluice::cli {
namespace {

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <typename Get>
double Median(const std::vector<BatchResult>& runs, Get get) {
  std::vector<double> values;
  for (const BatchResult& run : runs) values.push_back(get(run));
  return MedianOf(std::move(values));
}

// The values in the text report and the JSON report: medians over the runs.
struct Figures {
  double seconds, prefill_seconds, prefill_tokens_per_second, prefill_flops_per_second;
  double decode_tokens_per_second, decode_steps_per_second, decode_bytes_per_second;
  double host_milliseconds, first_token_seconds, total_tokens_per_second, output_tokens_per_second;
};

Figures FiguresOf(const BenchReport& report) {
  Figures f{};
  f.seconds = Median(report.runs, [](const BatchResult& r) { return r.seconds; });
  f.prefill_seconds = Median(report.runs, [](const BatchResult& r) { return r.prefill_seconds; });
  f.first_token_seconds =
      Median(report.runs, [](const BatchResult& r) { return MedianOf(r.first_token_seconds); });
  f.decode_tokens_per_second =
      Median(report.runs, [](const BatchResult& r) { return r.decode_tokens_per_second(); });
  f.host_milliseconds =
      1e3 * Median(report.runs, [](const BatchResult& r) { return r.host_seconds_per_step(); });
  const double prompts = static_cast<double>(report.num_prompts);
  f.prefill_tokens_per_second = prompts * static_cast<double>(report.input_len) / f.prefill_seconds;
  f.prefill_flops_per_second = prompts * report.prefill_flops / f.prefill_seconds;
  f.decode_steps_per_second = f.decode_tokens_per_second / prompts;
  f.decode_bytes_per_second =
      f.decode_steps_per_second * static_cast<double>(report.token_weight_bytes);
  const double in = prompts * static_cast<double>(report.input_len);
  const double out = prompts * static_cast<double>(report.output_len);
  f.total_tokens_per_second = (in + out) / f.seconds;
  f.output_tokens_per_second = out / f.seconds;
  return f;
}

std::string Share(double value, double limit, std::string_view of) {
  return limit > 0 ? fmt::format(", {:.0f} % of {}", 100 * value / limit, of) : "";
}

}  // namespace

BenchReport MakeReport(const EngineInfo& info, std::optional<MachineLimits> limits,
                       int64_t num_prompts, int64_t input_len, int64_t output_len) {
  const ModelConfig& model = info.model;
  BenchReport report;
  report.shape =
      fmt::format("{}: {} layers, hidden {}, intermediate {}, {}/{} heads of {}, vocabulary {}, {}",
                  model.architecture, model.num_hidden_layers, model.hidden_size,
                  model.intermediate_size, model.num_attention_heads, model.num_key_value_heads,
                  model.head_dim, model.vocab_size, DtypeName(info.dtype));
  report.token_weight_bytes = info.token_weight_bytes;
  report.limits = limits;
  report.num_threads = info.num_threads;
  report.num_prompts = num_prompts;
  report.input_len = input_len;
  report.output_len = output_len;
  report.prefill_flops = PrefillFlops(WorkOf(model), input_len);
  return report;
}

std::string BenchReport::Text() const {
  const Figures f = FiguresOf(*this);
  const MachineLimits bound = limits.value_or(MachineLimits{});
  std::string text = fmt::format("model    {}\n", shape);
  text += fmt::format(
      "work     {} prompts of {} tokens, {} tokens each, {} threads, median of {} runs\n",
      num_prompts, input_len, output_len, num_threads, runs.size());
  if (limits) {
    text += fmt::format("limits   read {:.1f} GB/s", bound.read_bytes_per_second / 1e9);
    // Instruction sets that the machine lacks are not shown.
    const auto add = [&](const char* unit, double flops_per_second) {
      if (flops_per_second > 0)
        text += fmt::format(", {} {:.0f} GFLOP/s", unit, flops_per_second / 1e9);
    };
    add("BF16 by AMX", bound.amx_bf16_flops_per_second);
    add("BF16 by AVX-512", bound.avx512_bf16_flops_per_second);
    add("FP32", bound.f32_flops_per_second);
    text += "\n";
  }
  // If prompts had to wait for others to end, prefill and decode cannot be distinguished.
  if (f.decode_tokens_per_second > 0 || output_len == 1) {
    const bool has_slow_dots = bound.avx512_bf16_flops_per_second < bound.f32_flops_per_second;
    text += fmt::format(
        "prefill  {:.3f} s, {:.1f} tok/s; {:.0f} GFLOP/s{}{}\n", f.prefill_seconds,
        f.prefill_tokens_per_second, f.prefill_flops_per_second / 1e9,
        Share(f.prefill_flops_per_second, bound.amx_bf16_flops_per_second, "the BF16 peak of AMX"),
        has_slow_dots
            ? Share(f.prefill_flops_per_second, bound.f32_flops_per_second, "the FP32 peak")
            : Share(f.prefill_flops_per_second, bound.avx512_bf16_flops_per_second,
                    "that of AVX-512"));
  }
  if (f.decode_tokens_per_second > 0) {
    text += fmt::format(
        "decode   {:.2f} tok/s in total, {:.1f} ms a step; {:.2f} GB/s of weights{}\n",
        f.decode_tokens_per_second, 1e3 / f.decode_steps_per_second,
        f.decode_bytes_per_second / 1e9,
        Share(f.decode_bytes_per_second, bound.read_bytes_per_second, "the read bandwidth"));
    text += fmt::format("host     {:.3f} ms a step outside the forward pass, sampling included\n",
                        f.host_milliseconds);
  }
  text += fmt::format("latency  {:.3f} s a batch, first token after {:.3f} s (median)\n", f.seconds,
                      f.first_token_seconds);
  text += fmt::format("total    {:.1f} tok/s, of which {:.1f} generated\n",
                      f.total_tokens_per_second, f.output_tokens_per_second);
  return text;
}

json::Value BenchReport::Json() const {
  const Figures f = FiguresOf(*this);
  json::Value object{json::Value::Object{}};
  object.Set("model", json::Value(shape));
  object.Set("num_threads", json::Value(num_threads));
  object.Set("num_prompts", json::Value(num_prompts));
  object.Set("input_len", json::Value(input_len));
  object.Set("output_len", json::Value(output_len));
  object.Set("num_runs", json::Value(static_cast<int64_t>(runs.size())));
  if (limits) {
    // Like the text report, omits instruction sets that the machine lacks.
    const auto set = [&](const char* name, double per_second) {
      if (per_second > 0) object.Set(name, json::Value(per_second));
    };
    set("limit_read_bytes_per_second", limits->read_bytes_per_second);
    set("limit_avx512_bf16_flops_per_second", limits->avx512_bf16_flops_per_second);
    set("limit_amx_bf16_flops_per_second", limits->amx_bf16_flops_per_second);
    set("limit_f32_flops_per_second", limits->f32_flops_per_second);
  }
  object.Set("weight_bytes_per_token", json::Value(token_weight_bytes));
  object.Set("prefill_seconds", json::Value(f.prefill_seconds));
  object.Set("prefill_tokens_per_second", json::Value(f.prefill_tokens_per_second));
  object.Set("prefill_flops_per_second", json::Value(f.prefill_flops_per_second));
  object.Set("decode_tokens_per_second", json::Value(f.decode_tokens_per_second));
  object.Set("decode_bytes_per_second", json::Value(f.decode_bytes_per_second));
  object.Set("host_milliseconds_per_step", json::Value(f.host_milliseconds));
  object.Set("seconds", json::Value(f.seconds));
  object.Set("first_token_seconds", json::Value(f.first_token_seconds));
  object.Set("total_tokens_per_second", json::Value(f.total_tokens_per_second));
  object.Set("output_tokens_per_second", json::Value(f.output_tokens_per_second));
  return object;
}

}  // namespace sluice::cli
