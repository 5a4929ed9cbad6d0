"""Hosts on this machine, joined by a switch, each behind a link that the kernel holds to a rate in both directions.

      switch (bridge)
     /   |   \\           each line: a veth pair, token buckets on both of its ends
host 0 host 1 host 2     10.77.0.1, 10.77.0.2, ...
"""

import os
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from laconic.errors import InvalidConfig, LaconicError, Unsupported
from laconic.lab.layout import Layout
from laconic.lab.namespaces import Namespace, NoPermission
from laconic.lab.paced import PacedNetwork
from laconic.lab.rates import Rate

DEVICE = "wire"  # a host's end of its link
KINDS = ("auto", "root", "user", "paced")
LARGEST = 65536  # bytes that the kernel hands to a device at once, where nothing forbids it


class Network(Protocol):
    """What a race needs of a network."""

    @property
    def layout(self) -> Layout: ...
    @property
    def kind(self) -> str:
        """root, user or paced."""

    @property
    def device(self) -> str | None:
        """What gloo should bind to."""

    def prefix(self, machine: int) -> list[str]: ...
    def address(self, machine: int) -> str: ...
    def set_rate(self, rate: Rate) -> None: ...
    def sent(self) -> list[int] | None:
        """Bytes that each machine has put on its link so far, by the kernel's count; None where nobody counts."""

    def close(self) -> None: ...


class ShapedNetwork:
    """The real thing: namespaces, veth pairs, a bridge and token buckets.

    As root, or with `user` inside a user namespace. `delay` (seconds, each way) and `loss` (a fraction) need netem,
    which not every kernel has. Use it as a context manager; should this process die, the kernel removes everything.
    """

    device = DEVICE

    def __init__(
        self, layout: Layout, rate: Rate, *, user: bool = False, delay: float = 0.0, loss: float = 0.0
    ) -> None:
        self.layout, self.kind = layout, "user" if user else "root"
        self.delay, self.loss = delay, loss
        self._hosts: list[Namespace] = []
        self._switch = Namespace(user)
        try:
            if (delay or loss) and not self.has_netem():
                raise Unsupported("this kernel has no netem, so links have no delay or loss here: leave both out")
            self._join()
            self.set_rate(rate)
        except BaseException:
            self.close()
            raise

    def has_netem(self) -> bool:
        """Whether this kernel can delay and lose packets."""
        try:
            self._switch.run("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        except LaconicError:
            return False
        return True

    def _join(self) -> None:
        self._switch.run("ip", "-batch", "-", feed=["link add bridge type bridge", "link set bridge up"])
        for machine in range(self.layout.machines):
            host = Namespace(self.kind == "user", inside=self._switch)
            self._hosts.append(host)
            port = f"port{machine}"
            # Without IPv6 addresses the counters hold the training's traffic and nothing else.
            self._switch.run(
                "ip", "-batch", "-",
                feed=[
                    f"link add {port} type veth peer name {DEVICE} netns {host.pid}",
                    f"link set {port} addrgenmode none", f"link set {port} master bridge up",
                ],
            )  # fmt: skip
            host.run(
                "ip", "-batch", "-",
                feed=[
                    "link set lo up", f"link set {DEVICE} addrgenmode none",
                    f"addr add {self.address(machine)}/24 dev {DEVICE}", f"link set {DEVICE} up",
                ],
            )  # fmt: skip

    def set_rate(self, rate: Rate) -> None:
        """Hold every link to `rate` from now on, in both directions; connections stay up."""
        ends = [(host, DEVICE) for host in self._hosts]
        ends += [(self._switch, f"port{machine}") for machine in range(self.layout.machines)]
        for namespace, device in ends:
            with suppress(LaconicError):  # a kernel that cannot is slower, and as exact
                namespace.run("ip", "link", "set", device, "gso_max_size", str(largest_packet(rate)))
            namespace.run("tc", "-batch", "-", feed=self._shaping(device, rate))

    def _shaping(self, device: str, rate: Rate) -> list[str]:
        parent, lines = "root handle 1:", []
        if self.delay or self.loss:
            lines.append(
                f"qdisc replace dev {device} root handle 1: netem delay {self.delay * 1e3}ms loss {self.loss:%}"
            )
            parent = "parent 1:1 handle 2:"
        if rate.bits is not None:
            lines.append(f"qdisc replace dev {device} {parent} tbf {token_bucket(rate)}")
        elif not lines:
            lines.append(f"qdisc replace dev {device} root handle 1: pfifo limit 1000")
        return lines

    def address(self, machine: int) -> str:
        return f"10.77.0.{machine + 1}"

    def prefix(self, machine: int) -> list[str]:
        return self._hosts[machine].prefix()

    def sent(self) -> list[int]:
        return [host.counters(DEVICE)[1] for host in self._hosts]

    def holders(self) -> list[int]:
        """Process ids that keep the namespaces open."""
        return [namespace.pid for namespace in (self._switch, *self._hosts)]

    def close(self) -> None:
        for namespace in (*self._hosts, self._switch):
            namespace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def token_bucket(rate: Rate) -> str:
    """tbf's parameters. The bucket is small, a millisecond of traffic: a large one would let each step's first bytes
    pass for free, and a compressed gradient is little more than that. The queue holds 200 ms, so TCP seldom loses."""
    queue = max(100_000, round(rate.bytes_per_second / 5))
    return f"rate {rate.bits}bit burst {_burst(rate)} limit {queue}"


def _burst(rate: Rate) -> int:
    return max(4_000, round(rate.bytes_per_second / 1000))


def largest_packet(rate: Rate) -> int:
    """What the kernel may hand over at once, headers left out. A card cuts it up by itself; tbf would do so in software
    where it exceeds the bucket, and a megabyte would cost the cores 30 ms at 200 Mbit/s, for packets of 1500 bytes."""
    return LARGEST if rate.bits is None else min(LARGEST, round(0.9 * _burst(rate)))


def open_network(layout: Layout, rate: Rate, kind: str = "auto", *, delay: float = 0.0, loss: float = 0.0) -> Network:
    """The best network that this machine allows: as root, in a user namespace, or paced on loopback (and labelled so).

    With an explicit `kind`, that one or NoPermission.
    """
    if kind not in KINDS:
        raise InvalidConfig("network", kind, f"choose one of {', '.join(KINDS)}")
    tries = {"auto": ["root", "user"] if os.name == "posix" else []}.get(kind, [kind])
    for attempt in tries:
        if attempt == "paced":
            break
        try:
            return ShapedNetwork(layout, rate, user=attempt == "user", delay=delay, loss=loss)
        except NoPermission:
            if kind != "auto":
                raise
    if delay or loss:
        raise Unsupported(
            "the paced network has no delay or loss: leave both out, or race where namespaces are allowed"
        )
    return PacedNetwork(layout, rate)
