"""The other side of ranks' lifelines and of launchers: what they say, and which of them are open."""

import socket
import threading
from contextlib import suppress

from stepwarden import wire

PATIENCE = 120.0


class Lifelines:
    """A listener. `answer` is what it says to each line; what it hears is kept with whose end has come."""

    def __init__(self, folder, answer=b""):
        self.path, self.answer = folder / wire.LIFE_SOCKET, answer
        self.heard, self.closed = [], []
        self.changed = threading.Condition()
        self.open()

    def open(self):
        self.connections = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(self.path))
        self.socket.listen(64)
        threading.Thread(target=self.accept, args=(self.socket,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.hear, args=(connection,), daemon=True).start()

    def hear(self, connection):
        last = None
        with connection, connection.makefile("rb") as lines, suppress(OSError):  # who told may be gone
            for line in lines:
                last = wire.from_line(line)
                self.note(self.heard, last)
                if self.answer:
                    connection.sendall(self.answer)
        self.note(self.closed, last)

    def note(self, where, what):
        with self.changed:
            where.append(what)
            self.changed.notify_all()

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), PATIENCE), (self.heard, self.closed)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for connection in self.connections:
            with suppress(OSError):  # its other end was closed first
                connection.shutdown(socket.SHUT_RDWR)
        self.path.unlink()
