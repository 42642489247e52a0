"""Network paths to a hub: proxies, private certificate authorities, and features of a hub that the program ignores."""
import base64
import contextlib
import http.server
import os
import select
import socket
import subprocess
import threading
import urllib.parse
import urllib.request

import pytest
from loopback_hub import Repository, serving_hub
from test_download import WEIGHTS, Place, same, small_model

from serving import free_port


class Proxy(http.server.BaseHTTPRequestHandler):
    """Forwards requests for an address (http) and tunnels (https)."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def is_let_through(self):
        self.server.seen.append((self.command, self.path))
        asked = self.server.password
        if not asked or self.headers.get("Proxy-Authorization") == "Basic " + base64.b64encode(asked.encode()).decode():
            return True
        self.send_response(407)
        self.send_header("Proxy-Authenticate", "Basic")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        if not self.is_let_through():
            return
        to = urllib.parse.urlsplit(self.path)
        with contextlib.closing(socket.create_connection((to.hostname, to.port))) as there:
            lines = ["%s %s HTTP/1.1" % (self.command, urllib.parse.urlunsplit(("", "", *to[2:])))]
            lines += ["%s: %s" % (name, value) for name, value in self.headers.items() if not name.lower().startswith("proxy-")]
            there.sendall(("\r\n".join(lines) + "\r\nConnection: close\r\n\r\n").encode())
            while data := there.recv(1 << 16):
                self.wfile.write(data)
        self.close_connection = True

    def do_CONNECT(self):
        if not self.is_let_through():
            return
        host, _, port = self.path.rpartition(":")
        with contextlib.closing(socket.create_connection((host, int(port)))) as there:
            self.send_response(200)
            self.end_headers()
            ends = {there: self.connection, self.connection: there}
            with contextlib.suppress(ConnectionError):
                while all(self.pass_on(end, ends[end]) for end in select.select(list(ends), [], [])[0]):
                    pass
        self.close_connection = True

    @staticmethod
    def pass_on(source, target):
        data = source.recv(1 << 16)
        target.sendall(data)
        return data


@pytest.fixture
def proxy():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.daemon_threads = True
        server.seen, server.password = [], None
        server.address = "127.0.0.1:%d" % server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A folder with a certificate authority, ca.crt, and certificates of two hubs: `here`, and `elsewhere` with another name. expired.crt
    is a certificate of `here` that expired yesterday."""
    folder = tmp_path_factory.mktemp("authority")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "ca.key", "-out", folder / "ca.crt", "-days", "2", "-subj", "/CN=house")
    for name, names, days in (("here", "IP:127.0.0.1,DNS:localhost", {"here": 2, "expired": -1}), ("elsewhere", "DNS:hub.example", {"elsewhere": 2})):
        openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / (name + ".key"), "-out", folder / "request", "-subj", "/CN=" + name)
        (folder / "names").write_text("subjectAltName=" + names)
        for certificate, count in days.items():
            openssl("x509", "-req", "-in", folder / "request", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial",
                    "-days", count, "-extfile", folder / "names", "-out", folder / (certificate + ".crt"))
    return folder


@contextlib.contextmanager
def place_of(folder, *certificate):
    with serving_hub({"a/b": Repository(small_model())}, *certificate) as hub:
        place = Place(hub, folder)
        # Removes the machine's own settings.
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            place.env.update({name: "", name.upper(): ""})
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            place.env[name] = ""
        yield place


def paths(proxy):
    return {urllib.parse.urlsplit(path).path for _, path in proxy.seen}


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_for_http(tmp_path, proxy, variable):
    with place_of(tmp_path) as place:
        assert same(place.pulled(**{variable: "http://" + proxy.address}), place.hub.repositories["a/b"].files)
        assert {"/api/models/a/b/revision/main", "/a/b/" + WEIGHTS} <= paths(proxy), "hub and store are asked through the proxy"
        assert len(proxy.seen) == len(place.hub.requests)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_for_https(tmp_path, authority, proxy, variable):
    with place_of(tmp_path, authority / "here.crt", authority / "here.key") as place:
        folder = place.pulled(**{variable: "http://" + proxy.address, "SSL_CERT_FILE": str(authority / "ca.crt"), "HF_TOKEN": "secret"})
        assert same(folder, place.hub.repositories["a/b"].files)
        hosts = {path for method, path in proxy.seen if method == "CONNECT"}
        assert hosts == {place.hub.url.removeprefix("https://"), "localhost:%d" % place.hub.store_port}
        assert {r[4] for r in place.hub.taken("store")} == {None} and {r[4] for r in place.hub.taken("hub", "HEAD")} == {"Bearer secret"}


def test_hosts_that_need_no_proxy(tmp_path, proxy):
    with place_of(tmp_path) as place:
        place.pulled(HTTP_PROXY="http://" + proxy.address, NO_PROXY="localhost")
        assert proxy.seen and "/a/b/" + WEIGHTS not in paths(proxy), "the store is localhost"
        proxy.seen.clear()
        place.pulled("a/b", "--download-dir", tmp_path / "other", HTTP_PROXY="http://" + proxy.address, NO_PROXY="localhost,127.0.0.1")
        assert not proxy.seen


def test_a_proxy_that_asks_who_it_is(tmp_path, proxy):
    with place_of(tmp_path) as place:
        proxy.password = "someone:secret"
        place.refused("407", HTTP_PROXY="http://" + proxy.address)
        assert not place.hub.requests
        result = place.pull(HTTP_PROXY="http://someone:secret@" + proxy.address)
        assert result.returncode == 0 and "secret" not in result.stderr, result.stderr


def test_a_proxy_that_is_not_there(tmp_path):
    with place_of(tmp_path) as place:
        port = free_port()
        place.refused("cannot be reached", "127.0.0.1 port %d" % port, HTTP_PROXY="http://127.0.0.1:%d" % port)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_an_authority_of_ones_own(tmp_path, authority, variable):
    with place_of(tmp_path, authority / "here.crt", authority / "here.key") as place:
        assert same(place.pulled(**{variable: str(authority / "ca.crt")}), place.hub.repositories["a/b"].files)


@pytest.mark.parametrize("variable", ["SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_a_folder_of_authorities(tmp_path, authority, variable):
    folder = tmp_path / "authorities"
    folder.mkdir()
    (folder / "house.crt").write_bytes((authority / "ca.crt").read_bytes())
    openssl("rehash", folder)
    with place_of(tmp_path, authority / "here.crt", authority / "here.key") as place:
        assert same(place.pulled(**{variable: str(folder)}), place.hub.repositories["a/b"].files)


def test_v14_certificates_that_are_refused(tmp_path, authority):
    """The error names the certificate and comes immediately; the hub receives no request."""
    with place_of(tmp_path, authority / "here.crt", authority / "here.key") as place:
        place.refused("certificate", "SSL_CERT_FILE", HF_TOKEN="secret")
        other = tmp_path / "other.crt"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "other.key", "-out", other, "-days", "2", "-subj", "/CN=other")
        place.refused("certificate", str(other), SSL_CERT_FILE=str(other), HF_TOKEN="secret")
        place.refused(str(tmp_path / "absent.crt"), "SSL_CERT_FILE", SSL_CERT_FILE=str(tmp_path / "absent.crt"), HF_TOKEN="secret")
        assert not place.hub.requests
    with place_of(tmp_path, authority / "elsewhere.crt", authority / "elsewhere.key") as place:
        result = place.refused("certificate", "'127.0.0.1'", SSL_CERT_FILE=str(authority / "ca.crt"), HF_TOKEN="secret")
        assert "authorities" not in result.stderr, "the authority is the right one"
        assert not place.hub.requests
    with place_of(tmp_path, authority / "expired.crt", authority / "here.key") as place:
        place.refused("certificate has expired", SSL_CERT_FILE=str(authority / "ca.crt"), HF_TOKEN="secret")
        assert not place.hub.requests


def test_the_chunk_store_is_not_used(tmp_path):
    """A hub that also offers files in chunks is asked for whole files."""
    with place_of(tmp_path) as place:
        with urllib.request.build_opener(NoRedirects).open(urllib.request.Request(place.hub.url + "/a/b/resolve/main/" + WEIGHTS, method="HEAD")) as offer:
            assert offer.headers["X-Xet-Hash"] and "xet-read-token" in offer.headers["Link"]
        assert same(place.pulled(), place.hub.repositories["a/b"].files)
        assert not [r for r in place.hub.requests if "xet" in r[2]]
        assert os.listdir(tmp_path) == ["hub"]


class NoRedirects(urllib.request.HTTPErrorProcessor):
    def http_response(self, request, response):
        return response
