#include "models/program/print.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/program/buffers.h"

namespace sluice::program {
namespace {

// Formats a count with three significant digits and a unit prefix.
std::string Short(int64_t count) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  auto value = static_cast<double>(count);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", count)
                   : fmt::format("{:.{}f}{}", value,
                                 value < 10    ? 2
                                 : value < 100 ? 1
                                               : 0,
                                 kUnits[unit]);
}

std::string OperandsText(const Program& program, const Op& op) {
  std::vector<std::string_view> read, written;
  std::visit(
      [&](const auto& one) {
        one.Operands([&](BufferId buffer, Access access) {
          if (buffer == kNone || access == Access::kScratch) return;
          const std::string_view name = program.buffers[static_cast<size_t>(buffer)].name;
          if (access != Access::kWrite) read.push_back(name);
          if (access != Access::kRead) written.push_back(name);
        });
      },
      op);
  if (read.empty() && written.empty()) return "";
  if (read == written) return fmt::format("{}", fmt::join(read, ", "));
  return fmt::format("{} -> {}", fmt::join(read, ", "), fmt::join(written, ", "));
}

// Describes the dimensions of an operator, for the table's column "shape".
struct ShapeText {
  const Program& program;

  template <typename Other>
  std::string operator()(const Other& op) const {
    if constexpr (requires { op.n; }) {
      return fmt::format("[{}, {}]", op.n, op.k);
    } else if constexpr (requires { op.attention; }) {
      const AttentionSpec& spec = program.attentions[static_cast<size_t>(op.attention)];
      return fmt::format("{} heads of {}, {} of keys", spec.num_heads, spec.head_dim,
                         spec.num_kv_heads);
    } else if constexpr (requires { op.mixer; }) {
      const MixerSpec& spec = program.mixers[static_cast<size_t>(op.mixer)];
      if (spec.kind == MixerSpec::Kind::kShortConvolution)
        return fmt::format("{} channels, {} taps", spec.num_heads, spec.conv_width);
      return fmt::format("{} heads of [{}, {}], {} taps", spec.num_heads, spec.key_dim,
                         spec.head_dim, spec.conv_width);
    } else if constexpr (requires { op.moe; }) {
      const MoeSpec& spec = program.moes[static_cast<size_t>(op.moe)];
      return fmt::format("{} of {} experts", spec.top_k, spec.num_experts);
    } else if constexpr (requires { op.width; }) {
      return fmt::format("[{}]", op.width);
    } else {
      return "";
    }
  }
  std::string operator()(const GateMul& op) const { return fmt::format("[{}]", op.width); }
  std::string operator()(const SkipUnless& op) const {
    switch (op.condition) {
      case SkipUnless::Condition::kHasRows: return "a step without rows continues at the end";
      case SkipUnless::Condition::kWantsRows: return "a step without wanted rows ends here";
      case SkipUnless::Condition::kTakesTarget: return "of the target's hidden rows";
      case SkipUnless::Condition::kTakesOwn: return "of its own hidden rows";
    }
    return "";
  }
  std::string operator()(const Parts& op) const {
    return fmt::format("the next {} operators for at most {} rows at a time", op.count, op.rows);
  }
};

class Printer {
 public:
  Printer(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes)
      : program_(program), bytes_of_(bytes_of), kv_bytes_(kv_bytes) {}

  std::string Print() {
    text_ = fmt::format("{:<15} {:<44} {:<30} {:>8} {:>8} {:>8} {:>8}\n", "operator", "operands",
                        "shape", "weights", "FLOP/row", "KV/pos", "FLOP/pos");
    size_t index = 0;
    std::string last;  // text of the previous layer
    size_t first_alike = 0, num_alike = 0;
    const auto end_alike = [&] {
      if (num_alike > 1) {
        text_ += fmt::format("layers {} to {}: as layer {}\n", first_alike + 1,
                             first_alike + num_alike - 1, first_alike);
      }
    };
    for (size_t layer = 0; layer < program_.layers.size(); ++layer) {
      const LayerOps& ops = program_.layers[layer];
      Lines(index, static_cast<size_t>(ops.begin), text_);
      std::string lines;
      Lines(static_cast<size_t>(ops.begin), static_cast<size_t>(ops.end), lines);
      index = static_cast<size_t>(ops.end);
      if (layer > 0 && lines == last) {
        ++num_alike;
        continue;
      }
      end_alike();
      text_ += fmt::format("layer {}\n{}", layer, lines);
      last = std::move(lines);
      first_alike = layer;
      num_alike = 1;
    }
    end_alike();
    text_ += "after the layers\n";
    Lines(index, program_.ops.size(), text_);
    Line("in all", "", "", CostOf(program_, bytes_of_, kv_bytes_), text_);
    Buffers();
    return std::move(text_);
  }

 private:
  static void Line(std::string_view name, std::string_view operands, std::string_view shape,
                   const Cost& cost, std::string& text) {
    const auto number = [](int64_t count) { return count == 0 ? std::string() : Short(count); };
    std::string line = fmt::format("{:<15} {:<44} {:<30} {:>8} {:>8} {:>8} {:>8}", name, operands,
                                   shape, number(cost.weight_bytes), number(cost.row_operations),
                                   number(cost.position_bytes), number(cost.position_operations));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }

  void Lines(size_t begin, size_t end, std::string& text) const {
    for (size_t i = begin; i < end; ++i) {
      const Op& op = program_.ops[i];
      Line(NameOf(op), OperandsText(program_, op), std::visit(ShapeText{program_}, op),
           CostOf(program_, op, bytes_of_, kv_bytes_), text);
    }
  }

  void Buffers() {
    const BufferPlan plan = BufferPlan::For(program_);
    text_ += fmt::format("\n{:<24} {:>14} {:>14}\n", "buffer", "bytes a row", "bytes");
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.is_results) continue;
      text_ += fmt::format("{:<24} {:>14} {:>14}\n", buffer.name, buffer.row_bytes,
                           plan.bytes[i] * buffer.copies);
    }
    text_ += fmt::format("{:<24} {:>14} {:>14}\n", "in all, shared", "", plan.total_bytes);
    if (program_.states.empty()) return;
    text_ += fmt::format("\n{:<32} {:>14} {:>18}\n", "kept by a sequence", "bytes a token",
                         "bytes a sequence");
    int64_t token = 0, sequence = 0;
    for (const State& state : program_.states) {
      token += state.bytes_per_token;
      sequence += state.bytes_per_sequence;
    }
    text_ += fmt::format("{:<32} {:>14} {:>18}\n", fmt::format("{} states", program_.states.size()),
                         token, sequence);
  }

  const Program& program_;
  const MatrixBytes& bytes_of_;
  const int64_t kv_bytes_;
  std::string text_;
};

json::Value::Array NamesOf(const Program& program, const Op& op, bool of_written) {
  json::Value::Array names;
  std::visit(
      [&](const auto& one) {
        one.Operands([&](BufferId buffer, Access access) {
          const Access other = of_written ? Access::kRead : Access::kWrite;
          if (buffer == kNone || access == Access::kScratch || access == other) return;
          names.emplace_back(program.buffers[static_cast<size_t>(buffer)].name);
        });
      },
      op);
  return names;
}

}  // namespace

json::Value ToJson(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes) {
  json::Value::Array ops;
  size_t layer = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    while (layer < program.layers.size() && index >= program.layers[layer].end) ++layer;
    const bool is_in_layer = layer < program.layers.size() && index >= program.layers[layer].begin;
    const Op& op = program.ops[i];
    const Cost cost = CostOf(program, op, bytes_of, kv_bytes);
    json::Value entry{json::Value::Object{}};
    entry.Set("operator", NameOf(op));
    entry.Set("layer", is_in_layer ? json::Value(static_cast<int64_t>(layer)) : json::Value());
    entry.Set("reads", NamesOf(program, op, /*of_written=*/false));
    entry.Set("writes", NamesOf(program, op, /*of_written=*/true));
    entry.Set("shape", std::visit(ShapeText{program}, op));
    entry.Set("weight_bytes", cost.weight_bytes);
    entry.Set("operations_per_row", cost.row_operations);
    entry.Set("kv_bytes_per_position", cost.position_bytes);
    entry.Set("operations_per_position", cost.position_operations);
    ops.push_back(std::move(entry));
  }
  return ops;
}

std::string LabelOf(const Program& program, const Op& op) {
  const std::string operands = OperandsText(program, op);
  return operands.empty() ? NameOf(op) : fmt::format("{} {}", NameOf(op), operands);
}

std::string Print(const Program& program, const MatrixBytes& bytes_of, int64_t kv_bytes) {
  return Printer(program, bytes_of, kv_bytes).Print();
}

}  // namespace sluice::program
