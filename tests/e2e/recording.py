"""A server that answers as a script decides and records the requests."""
import contextlib
import http.server
import json
import threading


class Recorded(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body):
        with self.server.lock:
            number = len(self.server.seen)
            self.server.seen.append((self.path, dict(self.headers), body))
        status, kind, text = self.server.script(number, body)
        if status == 0:
            self.close_connection = True
            return
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        # A client that was stopped does not wait for the answer.
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # The maximum number of clients in a test. If more clients connect at once than this, some retry only a second
    # later.
    request_queue_size = 128


@contextlib.contextmanager
def recording(script):
    """Runs a server. `script(number, body)` gets the number of the request and its body, and returns (status, content type,
    text), or status 0 to close the connection without an answer; it may block. `seen` holds the requests: (path, headers,
    body)."""
    server = Server(("127.0.0.1", 0), Recorded)
    server.lock = threading.Lock()
    server.seen, server.script, server.port = [], script, server.server_address[1]
    server.url = "http://127.0.0.1:%d" % server.port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def stream(*events, done=True):
    return 200, "text/event-stream", "".join("data: %s\n\n" % json.dumps(e) for e in events) + ("data: [DONE]\n\n" if done else "")


def token(text):
    return {"choices": [{"index": 0, "text": text, "finish_reason": None}]}
