// Fuzz target whose input is a tekken.json, a zero byte and a text.
#include "base/fuzz_input.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tekken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view input = fuzz::Text(data, size);
  const size_t cut = input.find('\0');
  auto read = ReadTekkenJson(input.substr(0, cut));
  if (!read) {
    fuzz::Require(!read.error().message.empty());
    return 0;
  }
  const auto pipeline = tokenizer_internal::Pipeline::Create(std::move(read->parts), {});
  if (!pipeline) return 0;
  const std::string_view text =
      cut == std::string_view::npos ? std::string_view("a text") : input.substr(cut + 1);
  bool is_exceeded = false;
  const auto ids = (*pipeline)->Encode(text, true, nullptr, &is_exceeded);
  fuzz::Require(ids.has_value());
  for (const int32_t id : *ids) fuzz::Require(id >= 0 && id < (*pipeline)->vocab_size());
  return 0;
}
