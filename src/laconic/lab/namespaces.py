"""Network namespaces that live exactly as long as the process that asked for them.

A namespace here has no name and no mount: it is held open by a `cat` that reads a pipe of ours. When we close the
pipe, leave, crash or are killed, the kernel closes it for us, `cat` ends, and namespace, links and queues go with it.
So there is nothing to clean up, nothing to find stale, and two labs never meet.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence

from laconic.errors import LaconicError


class NoPermission(LaconicError, PermissionError):
    """The kernel or this container does not let us make network namespaces."""


class Namespace:
    """One network namespace, and with `user` a user namespace around it in which we are root.

    `inside` names a namespace whose user namespace to share (only there may links be made between the two).
    """

    def __init__(self, user: bool = False, inside: "Namespace | None" = None) -> None:
        for tool in ("unshare", "nsenter", "ip", "tc"):
            if shutil.which(tool) is None:
                raise NoPermission(
                    f"{tool} is not installed: install iproute2 and util-linux, or use the paced network"
                )
        self.pid: int
        self._user = user
        command = ["unshare", "--net", "cat"]
        if inside is not None and inside._user:
            command = ["nsenter", f"--target={inside.pid}", "--user", "--preserve-credentials", *command]
        elif user:
            command[1:1] = ["--user", "--map-root-user"]
        # A session of its own: Ctrl-C in the terminal is for us; the namespace ends when we close the pipe.
        self._holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._holder.pid
        if not self._entered():
            _, complaint = self._holder.communicate()
            said = complaint.decode().strip() or "no word why"
            remedy = "run as root, where user namespaces are allowed, or over the paced network"
            raise NoPermission(f"cannot make a network namespace ({said}): {remedy}")

    def _entered(self) -> bool:
        """A line that comes back through `cat` proves that unshare is behind us."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.write(b"\n")
            self._holder.stdin.flush()
        return self._holder.stdout.readline() == b"\n"

    def prefix(self) -> list[str]:
        """What to put before a command so that it runs in here."""
        user = ["--user", "--preserve-credentials"] if self._user else []
        return ["nsenter", f"--target={self.pid}", *user, "--net", "--"]

    def run(self, *command: str, feed: Sequence[str] = ()) -> str:
        """Run a command in here, with lines on its standard input; its output."""
        done = subprocess.run(
            [*self.prefix(), *command], input="\n".join(feed) + "\n", capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise LaconicError(f"{' '.join(command)} failed in the lab's network: {done.stderr.strip()}")
        return done.stdout

    def counters(self, device: str) -> tuple[int, int]:
        """Bytes that the kernel has (received, sent) on a device."""
        with open(f"/proc/{self.pid}/net/dev") as table:
            for line in table:
                name, _, figures = line.partition(":")
                if name.strip() == device:
                    received, *_rest = fields = [int(figure) for figure in figures.split()]
                    return received, fields[8]
        raise LaconicError(f"the lab's network has no device {device}")

    def close(self) -> None:
        if self._holder.poll() is None:
            for stream in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
                assert stream
                stream.close()
            try:
                self._holder.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, 9)
                self._holder.wait()
