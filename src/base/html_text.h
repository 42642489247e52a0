// Text within HTML.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Appends `text`, escaped for the text of an element or for an attribute's value in double quotes.
inline void AppendHtmlText(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out.push_back(c);
    }
  }
}

}  // namespace sluice
