"""Sends raw bytes on a connection, for requests that no client library sends."""
import http.client
import json
import socket

from serving import PATIENCE_S


def connect(server, receive_buffer=None):
    client = socket.socket()
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(PATIENCE_S)
    client.connect(("127.0.0.1", server.port))
    return client


def post(path, body, *fields):
    """A request with this body, as bytes; `fields`: more header lines."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = ["POST %s HTTP/1.1" % path, "Host: x", "Content-Type: application/json", "Content-Length: %d" % len(data), *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


def chunked(path, pieces, *fields):
    head = ["POST %s HTTP/1.1" % path, "Host: x", "Content-Type: application/json", "Transfer-Encoding: chunked", *fields]
    return ("\r\n".join(head).encode() + b"\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")


def read_all(client):
    """All bytes until the server closes or resets the connection."""
    parts = []
    try:
        while part := client.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def get(client, path):
    """Sends a request on a connection that stays open, reads the whole answer, and returns its status."""
    client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
    reply = http.client.HTTPResponse(client)
    reply.begin()
    reply.read()
    return reply.status


def send_and_read(server, data, half_close=False):
    """The whole answer to `data`; the server closes the connection, or this side half-closes it."""
    with connect(server) as client:
        try:
            client.sendall(data)
            if half_close:
                client.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # the server rejected the request before it was completely sent
        return read_all(client)


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0
