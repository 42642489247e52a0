// Responses for browsers: pages, and the files that pages load.
#pragma once

#include <string>

#include "server/http/http_types.h"
#include "server/web/web_files.h"

namespace sluice {

// Returns a page with a Content-Security-Policy that restricts it to this server: it can only load
// from and connect to this server, other origins cannot frame it, and inline code is not executed.
HttpResponse HtmlResponse(std::string page);

// Returns `file`, or 304 if `request` states that the client has it. Browsers cache the file and
// revalidate it each time.
HttpResponse FileResponse(const HttpRequest& request, const WebFile& file);

}  // namespace sluice
