#include "server/http/request_framing.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "base/ascii.h"

namespace sluice {
namespace {

constexpr HeadFault kBadRequest = {400, "Invalid HTTP request received."};

bool IsKnownCompression(std::string_view coding) {
  static constexpr std::string_view kCodings[] = {"gzip", "x-gzip", "compress", "x-compress",
                                                  "deflate"};
  return std::find(std::begin(kCodings), std::end(kCodings), coding) != std::end(kCodings);
}

// `value`: all Transfer-Encoding fields, joined by commas.
std::optional<HeadFault> TransferEncodingFault(std::string_view value) {
  if (AsciiLower(AsciiTrim(value, " \t")) == "chunked") return std::nullopt;
  bool known = true, chunked_last = false;
  while (true) {
    const size_t comma = value.find(',');
    const std::string coding = AsciiLower(AsciiTrim(value.substr(0, comma), " \t"));
    // An empty element is an error. A coding after "chunked" is an error, since "chunked" must be
    // last.
    if (coding.empty() || chunked_last) return kBadRequest;
    chunked_last = coding == "chunked";
    known = known && (chunked_last || IsKnownCompression(coding));
    if (comma == std::string_view::npos) break;
    value.remove_prefix(comma + 1);
  }
  if (!chunked_last) return kBadRequest;
  if (!known) return HeadFault{501, "The Transfer-Encoding is not known."};
  return HeadFault{415, "Compressed request bodies are not supported."};
}

// Whether `value` is uri-host [":" port] of RFC 3986; it may be empty.
bool IsHost(std::string_view value) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto of_name = [&](char c) {
    return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-._~!$&'()*+,;=").find(c) != std::string_view::npos;
  };
  size_t end = 0;
  if (value.starts_with('[')) {
    end = value.find(']');
    if (end == std::string_view::npos || end == 1) return false;
    const std::string_view address = value.substr(1, end - 1);
    if (!std::all_of(address.begin(), address.end(),
                     [&](char c) { return c == ':' || of_name(c); }))
      return false;
    ++end;
  } else {
    for (; end < value.size() && value[end] != ':'; ++end) {
      if (of_name(value[end])) continue;
      if (value[end] != '%' || end + 2 >= value.size()) return false;
      for (const char c : value.substr(end + 1, 2))
        if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
      end += 2;
    }
  }
  if (end == value.size()) return true;
  const std::string_view port = value.substr(end + 1);
  return value[end] == ':' && std::all_of(port.begin(), port.end(), digit);
}

}  // namespace

std::optional<HeadFault> FindHeadFault(const std::vector<HttpHeader>& fields, int version) {
  int hosts = 0;
  bool has_length = false, has_encoding = false;
  std::string encoding;
  for (const HttpHeader& field : fields) {
    if (field.name == "host") {
      ++hosts;
      if (!IsHost(AsciiTrim(field.value, " \t"))) return kBadRequest;
    } else if (field.name == "content-length") {
      has_length = true;
    } else if (field.name == "transfer-encoding") {
      if (has_encoding) encoding += ',';
      has_encoding = true;
      encoding += field.value;
    }
  }
  if (hosts > 1 || (hosts == 0 && version >= 11)) return kBadRequest;
  if (!has_encoding) return std::nullopt;
  if (has_length || version < 11) return kBadRequest;
  return TransferEncodingFault(encoding);
}

}  // namespace sluice
