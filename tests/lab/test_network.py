"""Shaped networks: as fast as asked and no faster, counted by the kernel, and gone with whoever made them."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from laconic.errors import InvalidConfig, Unsupported
from laconic.lab.layout import Layout
from laconic.lab.namespaces import NoPermission
from laconic.lab.network import ShapedNetwork, open_network
from laconic.lab.paced import PacedNetwork
from laconic.lab.rates import Rate, Schedule

from .processes import gone

PAYLOAD = 400_000
BURST = 20_000  # more than any token bucket here lets through at once, on both ends of two links together

LISTEN = """
import socket
server = socket.create_server(("", 9000))
print("listening", flush=True)
peer, _ = server.accept()
left = {size} * 2
while left:
    left -= len(peer.recv(65536))
    if left in (0, {size}):
        peer.sendall(b"x")
"""
SEND = """
import socket, sys, time
peer = socket.create_connection(("10.77.0.1", 9000))
for _ in range(2):
    start = time.perf_counter()
    peer.sendall(bytes({size}))
    peer.recv(1)
    print(time.perf_counter() - start, flush=True)
    sys.stdin.readline()
"""


def variants() -> list[object]:
    """Root and user networks, each skipped with its reason where this machine does not allow it."""
    made = []
    for user in (False, True):
        try:
            ShapedNetwork(Layout(1), Rate(None), user=user).close()
            marks = []
        except NoPermission as refusal:
            marks = [pytest.mark.skip(reason=f"no namespaces as {'user' if user else 'root'}: {refusal}")]
        made.append(pytest.param(user, id="user" if user else "root", marks=marks))
    return made


needs_network = pytest.mark.parametrize("user", variants())


@needs_network
def test_a_transfer_is_held_to_the_rate_also_after_a_change_and_counted(user: bool) -> None:
    slow, fast = Rate.parse("8mbit"), Rate.parse("80mbit")
    with ShapedNetwork(Layout(2), slow, user=user) as network:
        python = [sys.executable, "-c"]
        listen = subprocess.Popen(
            [*network.prefix(0), *python, LISTEN.format(size=PAYLOAD)], stdout=subprocess.PIPE, text=True
        )
        assert listen.stdout is not None
        assert listen.stdout.readline() == "listening\n"
        before = network.sent()
        send = subprocess.Popen(
            [*network.prefix(1), *python, SEND.format(size=PAYLOAD)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert send.stdout is not None
        assert send.stdin is not None
        at_slow = float(send.stdout.readline())
        network.set_rate(fast)
        send.stdin.write("\n")
        send.stdin.flush()
        at_fast = float(send.stdout.readline())
        send.communicate("\n")
        listen.communicate()
        sent = network.sent()[1] - before[1]
    # No faster than the wire; and the connection lived through a change to a wire ten times as fast.
    assert at_slow >= (PAYLOAD - BURST) / slow.bytes_per_second
    assert (PAYLOAD - BURST) / fast.bytes_per_second <= at_fast < at_slow / 2
    # 1448 bytes of payload ride in a packet of 1514: 4.6% of headers, and some for acknowledgements and repeats.
    assert 2 * PAYLOAD < sent < 2 * PAYLOAD * 1.15


@needs_network
def test_two_labs_live_side_by_side_with_the_same_addresses(user: bool) -> None:
    with ShapedNetwork(Layout(2), Rate(None), user=user) as one, ShapedNetwork(Layout(2), Rate(None), user=user) as two:
        serve = "import socket; server = socket.create_server(('10.77.0.1', 9000)); print('up', flush=True); input()"
        servers = [
            subprocess.Popen(
                [*lab.prefix(0), sys.executable, "-c", serve],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for lab in (one, two)
        ]  # fmt: skip
        assert [server.stdout.readline() for server in servers if server.stdout] == ["up\n", "up\n"]
        for server in servers:
            server.communicate("\n")


@needs_network
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, None], ids=str)
def test_nothing_is_left_when_the_maker_ends(user: bool, end: signal.Signals | None) -> None:
    if user and end is not signal.SIGKILL and os.geteuid() == 0:
        pytest.skip("the ways to end differ in the maker alone: all are tried as root, the hardest as a user too")
    maker = f"""
        import signal, sys
        from laconic.lab.layout import Layout
        from laconic.lab.network import ShapedNetwork
        from laconic.lab.rates import Rate
        network = ShapedNetwork(Layout(2), Rate.parse("10mbit"), user={user})
        print(*network.holders(), flush=True)
        sys.stdin.readline()
        raise RuntimeError("a crash")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(maker)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    holders = [int(pid) for pid in process.stdout.readline().split()]
    assert len(holders) == 3
    assert not gone(holders[:1], seconds=0.0)
    if end is not None:
        process.send_signal(end)
    process.communicate("\n")
    assert gone(holders)


@needs_network
def test_delay_needs_netem_and_its_absence_is_said(user: bool) -> None:
    with ShapedNetwork(Layout(1), Rate(None), user=user) as network:
        has_netem = network.has_netem()
    if has_netem:
        with ShapedNetwork(Layout(2), Rate(None), user=user, delay=0.05) as network:
            ping = "import socket, time; start = time.time(); s = socket.socket(); s.connect_ex(('10.77.0.1', 9)); "
            waited = [*network.prefix(1), sys.executable, "-c", ping + "print(time.time() - start)"]
            assert float(subprocess.check_output(waited)) >= 0.1  # there and back
    else:
        with pytest.raises(Unsupported, match="netem"):
            ShapedNetwork(Layout(1), Rate(None), user=user, delay=0.05)


def test_an_explicit_kind_is_that_or_an_error() -> None:
    assert isinstance(open_network(Layout(2), Rate(None), "paced"), PacedNetwork)
    with pytest.raises(InvalidConfig, match="network='wifi'"):
        open_network(Layout(2), Rate(None), "wifi")
    with pytest.raises(Unsupported, match="paced"):
        open_network(Layout(2), Rate(None), "paced", delay=0.01)


@pytest.mark.parametrize(
    "text", ["", "fast", "50", "-5mbit", "0mbit", "1e9mbit", "nanmbit", "5mbit for steps, then 1mbit"]
)
def test_a_rate_that_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="rate="):
        Schedule.parse(text)


@pytest.mark.parametrize("text", ["0", "2x0", "x", "-1", "2x", "two", "1000"])
def test_a_layout_that_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="hosts="):
        Layout.parse(text)
