"""Addresses at which this process is asked to listen."""

from __future__ import annotations

import ipaddress
import socket

from raychains.core.errors import UserError, reason, shown


def check_free(host: str, port: int) -> None:
    """Refuse an address at which no server can listen.

    Raises:
        UserError: the port is taken or may not be used, or the host is no address of this machine.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(where)
    except (OSError, UnicodeError) as error:
        what = "port" if getattr(error, "errno", None) in (13, 98, 48) else "host"
        value = port if what == "port" else host
        free = "be one that is free and may be used" if what == "port" else "be an address of this machine"
        raise UserError(f"{what} must {free}, got {shown(value)}: {reason(error)}") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens at the host."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback for *_, where in found)
