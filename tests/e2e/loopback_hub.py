"""A Hugging Face hub on the loopback interface, as huggingface_hub sees it, with faults on demand.

Runs two servers: the hub, and the store of large files at another host name and port, to which the hub redirects.
"""
import contextlib
import hashlib
import http.server
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse

PART = 1 << 16
QUICK_PART = 1 << 20  # bytes per write without injected faults


class Repository:
    """Files by name; they determine the commit."""

    def __init__(self, files, gated=False):
        self.files, self.gated, self.etags = dict(files), gated, {}
        self.revisions = {"main"}  # names of the only commit
        names = sorted(self.files)
        self.commit = hashlib.sha1(b"".join(n.encode() + hashlib.sha1(self.files[n]).digest() for n in names)).hexdigest()

    @staticmethod
    def is_large(name):
        return name.endswith(".safetensors")

    def etag(self, name):
        if name not in self.etags:
            data = self.files[name]
            self.etags[name] = (hashlib.sha256(data) if self.is_large(name) else hashlib.sha1(b"blob %d\0" % len(data) + data)).hexdigest()
        return self.etags[name]


class Hub:
    def __init__(self, repositories):
        self.repositories = repositories
        self.lock = threading.Lock()
        self.requests = []  # (method, "hub" or "store", path, range, authorization)
        self.served = 0  # bytes of large files
        # Faults.
        self.cut_every = 0  # breaks the connection in the middle of a part, each time this many bytes were sent
        self.bytes_per_second = 0  # per connection
        self.corrupt = 0  # number of the store's answers with a wrong byte
        self.no_ranges = False  # the store sends whole files
        self.other_size = 0  # the store's files are longer by this many bytes
        self.html = False  # the store answers with a page
        self.expired = 0  # number of the store's answers that reject the URL as expired
        self.refusals = []  # (status, headers) of the hub's next answers
        self.not_a_hub = False
        self.etags = {}  # name -> the ETag in answers to HEAD, instead of the real one
        self.linked_sizes = {}  # name -> the size of a large file in answers to HEAD, instead of the real one
        self.most_served = 1 << 62  # after this many bytes the store sends nothing more
        self.trickle = None  # "hub" or "store": sends one byte ten times a second
        self.store_paths = 0
        self.redirect_to = None
        self.cuts, self.most_cuts = 0, 1 << 30
        self.ended = False

    def taken(self, where, method="GET"):
        return [r for r in self.requests if r[0] == method and r[1] == where]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    where = "hub"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            if self.server.hub.trickle == self.where:
                return self.send_slowly(data)
            self.wfile.write(data)

    def send_slowly(self, data):
        self.close_connection = True
        for place in range(len(data)):
            if self.server.hub.ended:
                break
            self.wfile.write(data[place:place + 1])
            self.wfile.flush()
            time.sleep(0.1)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path.replace("%2F", "\0"))  # a revision such as refs/pr/1 contains slashes
        with hub.lock:
            hub.requests.append((self.command, self.where, path, self.headers.get("Range"), self.headers.get("Authorization")))
            refusal = hub.refusals.pop(0) if hub.refusals and self.where == "hub" else None
        with contextlib.suppress(ConnectionError):
            if refusal:
                return self.answer(refusal[0], {"error": "not now"}, refusal[1])
            if self.where == "store":
                return self.store(hub, path)
            if hub.not_a_hub:
                return self.answer(200, b"<html>please log in</html>", {"Content-Type": "text/html"})
            return self.hub_page(hub, path, urllib.parse.parse_qs(parts.query))

    def hub_page(self, hub, path, query):
        if path == "/api/models":
            word, author = (query.get(key, [""])[0] for key in ("search", "author"))
            found = [name for name in hub.repositories if word.lower() in name.lower() and name.startswith(author and author + "/")]
            return self.answer(200, [{"id": name} for name in found])
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        name = (found or file) and (found or file)[1]
        if name not in hub.repositories:
            return self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        repository = hub.repositories[name]
        revision = found[3] if found else file[2]
        if revision and revision.replace("\0", "/") not in repository.revisions | {repository.commit}:
            return self.answer(404, {"error": "Revision Not Found"}, {"X-Error-Code": "RevisionNotFound"})
        if found:
            files = [{"type": "file", "path": n, "rfilename": n, "size": len(repository.files[n]), "oid": repository.etag(n)} for n in sorted(repository.files)]
            if found[2] == "tree":
                return self.answer(200, files)
            return self.answer(200, {"id": name, "modelId": name, "sha": repository.commit, "private": False, "tags": [], "downloads": 0, "likes": 0, "siblings": files})
        if repository.gated and self.headers.get("Authorization") != "Bearer good":
            return self.answer(403, {"error": "restricted"}, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model %s is restricted" % name})
        if file[3] not in repository.files:
            return self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
        etag = '"%s"' % hub.etags.get(file[3], repository.etag(file[3]))
        common = {"X-Repo-Commit": repository.commit, "ETag": etag}
        if repository.is_large(file[3]):
            hub.store_paths += 1
            location = hub.redirect_to or "%s://localhost:%d/%s/%s?signature=%d" % (hub.scheme, hub.store_port, name, file[3], hub.store_paths)
            # Headers that refer clients to the hub's chunk store.
            chunks = {"X-Xet-Hash": hashlib.sha256(file[3].encode()).hexdigest(),
                      "Link": '<%s/api/models/%s/xet-read-token/%s>; rel="xet-auth"' % (hub.url, name, repository.commit)}
            return self.answer(302, b"", {**common, **chunks, "X-Linked-Etag": etag, "X-Linked-Size": hub.linked_sizes.get(file[3], len(repository.files[file[3]])), "Location": location})
        return self.content(hub, repository.files[file[3]], common)

    def store(self, hub, path):
        name, _, file = path[1:].rpartition("/")
        data = hub.repositories[name].files[file]
        with hub.lock:
            expired, hub.expired = hub.expired > 0, max(hub.expired - 1, 0)
            corrupt, hub.corrupt = hub.corrupt > 0, max(hub.corrupt - 1, 0)
        if expired:
            return self.answer(403, b"<Error>expired</Error>", {"Content-Type": "application/xml"})
        if hub.html:
            return self.answer(200, b"<html>down for maintenance</html>", {"Content-Type": "text/html"})
        if corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        return self.content(hub, data + b"x" * hub.other_size, {}, faulty=True)

    def content(self, hub, data, headers, faulty=False):
        begin, end, status = 0, len(data), 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked and not (faulty and hub.no_ranges):
            begin, end, status = int(asked[1]), min(len(data), int(asked[2]) + 1 if asked[2] else len(data)), 206
            headers = {**headers, "Content-Range": "bytes %d-%d/%d" % (begin, end - 1, len(data))}
        self.send_response(status)
        for name, value in {**headers, "Content-Length": end - begin, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "HEAD":
            return
        if hub.trickle == self.where:
            return self.send_slowly(data[begin:end])
        view, start = memoryview(data), time.monotonic()
        faulty = faulty and (hub.cut_every or hub.bytes_per_second or hub.most_served < 1 << 62)
        size = PART if faulty else QUICK_PART
        for place in range(begin, end, size):
            part = view[place:min(end, place + size)]
            if faulty:
                with hub.lock:
                    hub.served += len(part)
                    cut = hub.cut_every and hub.served // hub.cut_every > hub.cuts and hub.cuts < hub.most_cuts
                    hub.cuts += bool(cut)
                if cut:
                    self.wfile.write(part[:len(part) // 2])
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
            while faulty and hub.served > hub.most_served and not hub.ended:
                time.sleep(0.01)
            self.wfile.write(part)
            if faulty and hub.bytes_per_second:
                time.sleep(max(0, start + (place + len(part) - begin) / hub.bytes_per_second - time.monotonic()))


class StoreHandler(Handler):
    where = "store"


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub, handler, tls):
        self.hub, self.tls = hub, tls
        super().__init__(("127.0.0.1", 0), handler)

    def finish_request(self, request, client_address):
        """Runs in a thread, so that a client that is silent during the handshake blocks no other client."""
        if self.tls:
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except (ssl.SSLError, ConnectionError):
                return  # the client does not trust the certificate
        super().finish_request(request, client_address)


@contextlib.contextmanager
def serving_hub(repositories, certificate=None, key=None):
    """A Hub, for use with HF_ENDPOINT=hub.url; over TLS if `certificate`, the path of a file, is given."""
    hub, tls = Hub(repositories), None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
    servers = [Server(hub, Handler, tls), Server(hub, StoreHandler, tls)]
    hub.scheme = "https" if tls else "http"
    hub.url, hub.store_port = "%s://127.0.0.1:%d" % (hub.scheme, servers[0].server_address[1]), servers[1].server_address[1]
    threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.ended = True
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()
