"""Loaded by every Python process whose PYTHONPATH names this folder: refuses and notes what is not local.

Looking a name up is refused as well: it asks a server. The notes go to the file that NETWORK_ASKED names.
"""

import os
import socket
import sys

LOCAL = ("127.", "::1", "localhost", "0.0.0.0")
connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo


def check(family, host, what):
    if family == socket.AF_UNIX or host is None or str(host).startswith(LOCAL):
        return
    with open(os.environ["NETWORK_ASKED"], "a", encoding="utf-8") as file:
        file.write(f"{what} {host} by {' '.join(sys.orig_argv)}\n")
    raise OSError("no network in this test")


def guarded(real):
    def ask(self, address):
        check(self.family, address if isinstance(address, (str, bytes)) else address[0], "connect")
        return real(self, address)

    return ask


def look_up(host, *args, **kwargs):
    check(None, host.decode() if isinstance(host, bytes) else host, "look up")
    return getaddrinfo(host, *args, **kwargs)


socket.socket.connect, socket.socket.connect_ex = guarded(connect), guarded(connect_ex)
socket.getaddrinfo = look_up
