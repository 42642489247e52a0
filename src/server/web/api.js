// Calls to the server of this page. All addresses are relative to the page's own, so that they work behind a proxy's
// prefix.
import {readEvents} from "./events.js";
import {askForKey} from "./key.js";
import {kept} from "./kept.js";

export const base = new URL(".", document.baseURI);

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The message of either shape of errors: {"error": {"message": ...}} or {"detail": ...}.
function messageOf(status, text) {
  try {
    const body = JSON.parse(text);
    const said = body.error?.message ?? body.message ?? body.detail ?? body.error;
    if (typeof said === "string") return said;
  } catch {
    // The body is not JSON: it is a proxy's page, or empty.
  }
  return `The server answered ${status}.`;
}

// Returns the response if it is a success. Asks the user for a key if the server requires one.
export async function call(path, {body, signal, method} = {}) {
  for (;;) {
    const key = kept.key();
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(new URL(path, base), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
    if (response.ok) return response;
    const text = await response.text();
    if (response.status !== 401) throw new ApiError(response.status, messageOf(response.status, text));
    // Another call may have obtained a key meanwhile.
    if (kept.key() === key && !(await askForKey(Boolean(key)))) {
      throw new ApiError(401, "This server needs an API key.");
    }
  }
}

// The parsed events of a streamed answer; ends at [DONE]. Throws on an error event.
export async function* stream(path, body, signal) {
  const response = await call(path, {body, signal});
  for await (const data of readEvents(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message ?? "The answer broke off.");
    yield event;
  }
}
