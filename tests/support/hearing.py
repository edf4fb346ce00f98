"""The other side of the wire: a socket that keeps what agents say, as a sidecar would hear it."""

import socket
import threading

from stepwarden import wire

PATIENCE = 120.0
MARK = b"heard so far"


class Sidecar:
    """A socket that keeps what agents say."""

    def __init__(self, folder):
        self.folder = folder
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / wire.SIDECAR_SOCKET))
        self.socket.settimeout(0.1)
        self.heard, self.marks, self.waiting = [], 0, False
        self.changed = threading.Condition()
        self.open = True
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while self.open:
            try:
                said = self.socket.recv(wire.MAX_DATAGRAM)
            except TimeoutError:
                continue
            with self.changed:
                if said == MARK:
                    self.marks += 1
                else:
                    self.heard.append(wire.from_line(said))
                self.changed.notify_all()

    def close(self):
        if self.open:
            self.open = False
            self.thread.join()
            self.socket.close()
            (self.folder / wire.SIDECAR_SOCKET).unlink()

    def order(self, **orders):
        line = wire.to_line(wire.Orders(**orders)).encode()
        for name in self.folder.glob("rank-*.sock"):
            self.socket.sendto(line, str(name))

    def wait(self, condition):
        """Wait until a condition on what was heard is true, and return it."""
        with self.changed:
            self.waiting = True
            try:
                assert self.changed.wait_for(lambda: condition(self), PATIENCE), self.heard[-20:]
                return condition(self)
            finally:
                self.waiting = False

    def catch_up(self):
        """Hear all that has been said before: what is sent comes in the order in which it was sent."""
        if self.open and not self.waiting:
            marks = self.marks + 1
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(MARK, str(self.folder / wire.SIDECAR_SOCKET))
            with self.changed:
                assert self.changed.wait_for(lambda: self.marks >= marks, PATIENCE), self.heard[-20:]

    def of(self, cls):
        """Return what of a kind has been said."""
        self.catch_up()
        return [message for message in list(self.heard) if isinstance(message, cls)]

    def held(self, step):
        """Return the ranks that have said that they hold at a step."""
        return {
            said.rank: said for said in self.of(wire.RankState) if (said.state, said.step) == ("held", step)
        }

    def findings(self, kind, step):
        """Return the findings of a kind and step, by rank."""
        return {said.rank: said for said in self.of(wire.Finding) if (said.kind, said.step) == (kind, step)}
