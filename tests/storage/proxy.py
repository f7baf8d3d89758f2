"""A TCP proxy between a client and an HTTP server that refuses, crawls, cuts and answers errors when told to.

`python -m tests.storage.proxy TARGET PORT` is one that forwards everything, as a process.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

CHUNK = 65536


class Proxy:
    """Forwards 127.0.0.1:``port`` to another port of this machine. Every change of mode ends the connections there are.

    Faults act on what the client sends, but for `cut_answers`.
    """

    def __init__(self, target: int, port: int = 0) -> None:
        self._target = target
        self._lock = threading.RLock()
        self._connections: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = port
        self.requests_failed = self.cuts_made = 0
        self._errors, self._status = 0, ""
        self._cuts, self._cut_after, self._cut_answers = 0, 0, False
        self._bytes_per_second: float | None = None
        self._stalled = False
        self.normal()

    def normal(self) -> None:
        """Forward everything."""
        self._set()

    def refuse(self) -> None:
        """Nobody listens: connections are refused."""
        with self._lock:
            self._set()
            assert self._listener is not None
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            self._drop()

    def slow(self, bytes_per_second: float) -> None:
        """Forward what the client sends at this pace."""
        self._set()
        self._bytes_per_second = bytes_per_second

    def stall(self) -> None:
        """Take what the client sends and pass nothing on."""
        self._set()
        self._stalled = True

    def cut(self, times: int, after: int) -> None:
        """End each of the next connections once this many bytes came from the client."""
        self._set()
        self._cuts, self._cut_after = times, after

    def cut_answers(self, times: int, after: int) -> None:
        """End each of the next connections once this many bytes came from the server."""
        self._set()
        self._cuts, self._cut_after, self._cut_answers = times, after, True

    def errors(self, requests: int, status: str = "500 Internal Server Error") -> None:
        """Answer the next requests with an error, without forwarding them."""
        self._set()
        self._errors, self._status = requests, status

    def close(self) -> None:
        if self._listener is not None:
            self.refuse()

    def _set(self) -> None:
        with self._lock:
            self._errors = self._cuts = 0
            self._cut_answers, self._bytes_per_second, self._stalled = False, None, False
            self._drop()
            if self._listener is None:
                self._listener = socket.create_server(("127.0.0.1", self.port))
                self.port = self._listener.getsockname()[1]
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _drop(self) -> None:
        for connection in list(self._connections):
            _reset(connection)
        self._connections.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            fail = self._errors > 0
            self._errors -= fail
        if fail:
            self._answer_error(client)
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            _reset(client)
            return
        with self._lock:
            self._connections.add(server)
        threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()
        self._pump(client, server, False)

    def _answer_error(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (more := client.recv(CHUNK)):
                head += more
            if head:
                self.requests_failed += 1
                client.sendall(f"HTTP/1.1 {self._status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                client.shutdown(socket.SHUT_WR)
                client.settimeout(1.0)
                while client.recv(CHUNK):  # what it still sends, or the answer would be lost in a reset
                    pass
        client.close()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if self._stalled:
                    continue
                if self._cuts and self._cut_answers is answers and passed + len(data) > self._cut_after:
                    with contextlib.suppress(OSError):
                        target.sendall(data[: self._cut_after - passed])
                    with self._lock:
                        mine = self._cuts > 0
                        self._cuts -= mine
                        self.cuts_made += mine
                    break
                if self._bytes_per_second is not None and not answers:
                    time.sleep(len(data) / self._bytes_per_second)
                target.sendall(data)
                passed += len(data)
        with self._lock:
            self._connections -= {source, target}
        _reset(source)
        _reset(target)


def _reset(connection: socket.socket) -> None:
    """End a connection in both directions, whoever waits on it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def proxy(target: int) -> Iterator[Proxy]:
    """A proxy that is closed at the end."""
    running = Proxy(target)
    try:
        yield running
    finally:
        running.close()


if __name__ == "__main__":
    import sys

    in_front = Proxy(int(sys.argv[1]), int(sys.argv[2]))
    threading.Event().wait()
