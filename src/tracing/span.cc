#include "tracing/span.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/utf8.h"

namespace sluice {
namespace {

// Writes the fields of one protobuf message.
class ProtobufMessage {
 public:
  void Bytes(int field, std::string_view bytes) {
    Tag(field, 2);
    Varint(bytes.size());
    out_ += bytes;
  }
  void Id(int field, std::span<const unsigned char> id) {
    Bytes(field, {reinterpret_cast<const char*>(id.data()), id.size()});
  }
  void Text(int field, std::string_view text) {
    if (IsValidUtf8(text)) return Bytes(field, text);
    std::string valid;
    while (!text.empty()) {
      const Utf8Sequence first = FirstUtf8Sequence(text);
      if (first.valid) {
        valid += text.substr(0, first.size);
      } else {
        AppendUtf8(valid, 0xfffd);
      }
      text.remove_prefix(first.size);
    }
    Bytes(field, valid);
  }
  void Message(int field, const ProtobufMessage& message) { Bytes(field, message.out_); }
  void Integer(int field, uint64_t value) {
    Tag(field, 0);
    Varint(value);
  }
  void Fixed64(int field, uint64_t value) {
    Tag(field, 1);
    Fixed(value, 8);
  }
  void Fixed32(int field, uint32_t value) {
    Tag(field, 5);
    Fixed(value, 4);
  }
  std::string Take() { return std::move(out_); }

 private:
  void Tag(int field, int type) { Varint(static_cast<uint64_t>(field << 3 | type)); }
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  void Fixed(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<char>(value >> 8 * i));
  }

  std::string out_;
};

// The field numbers are from opentelemetry/proto/{common,resource,trace}/v1.

ProtobufMessage KeyValue(const SpanAttribute& attribute) {
  ProtobufMessage value;
  if (const auto* text = std::get_if<std::string>(&attribute.value)) value.Text(1, *text);
  if (const auto* integer = std::get_if<int64_t>(&attribute.value))
    value.Integer(3, static_cast<uint64_t>(*integer));
  if (const auto* number = std::get_if<double>(&attribute.value))
    value.Fixed64(4, std::bit_cast<uint64_t>(*number));
  ProtobufMessage message;
  message.Text(1, attribute.name);
  message.Message(2, value);
  return message;
}

ProtobufMessage SpanMessage(const TraceSpan& span) {
  constexpr uint64_t kServer = 2;
  // Bits of `flags`: kKnown: it is known whether the parent is remote; kRemote: the parent is
  // remote.
  constexpr uint32_t kKnown = 0x100, kRemote = 0x200;
  const bool has_parent = std::ranges::any_of(span.parent_id, [](auto byte) { return byte != 0; });
  ProtobufMessage message;
  message.Id(1, span.trace_id);
  message.Id(2, span.span_id);
  if (!span.trace_state.empty()) message.Text(3, span.trace_state);
  if (has_parent) message.Id(4, span.parent_id);
  message.Text(5, span.name);
  message.Integer(6, kServer);
  message.Fixed64(7, static_cast<uint64_t>(span.start_ns));
  message.Fixed64(8, static_cast<uint64_t>(span.end_ns));
  for (const SpanAttribute& attribute : span.attributes) message.Message(9, KeyValue(attribute));
  message.Fixed32(16, span.flags | kKnown | (has_parent ? kRemote : 0));
  return message;
}

}  // namespace

std::string EncodeSpans(std::span<const SpanAttribute> resource, std::string_view scope,
                        std::string_view scope_version, std::span<const TraceSpan> spans) {
  ProtobufMessage source;
  for (const SpanAttribute& attribute : resource) source.Message(1, KeyValue(attribute));
  ProtobufMessage instrumentation;
  instrumentation.Text(1, scope);
  instrumentation.Text(2, scope_version);
  ProtobufMessage scope_spans;
  scope_spans.Message(1, instrumentation);
  for (const TraceSpan& span : spans) scope_spans.Message(2, SpanMessage(span));
  ProtobufMessage resource_spans;
  resource_spans.Message(1, source);
  resource_spans.Message(2, scope_spans);
  ProtobufMessage request;
  request.Message(1, resource_spans);
  return request.Take();
}

}  // namespace sluice
