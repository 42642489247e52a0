// Answers that a browser shows: pages and what they load.
#pragma once

#include <string>

#include "server/http/http_types.h"
#include "server/web/web_files.h"

namespace sluice {

// With the headers that keep a page to what this server sends it: it loads, connects to and is
// framed by nothing else, and no text becomes markup or code.
HttpResponse HtmlResponse(std::string page);

// `file`, or 304 where `request` says that the client has it. Browsers keep it and ask each time
// whether it changed.
HttpResponse FileResponse(const HttpRequest& request, const WebFile& file);

}  // namespace sluice
