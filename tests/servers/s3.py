"""A server that speaks S3, in this process, on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

KEY, SECRET = "a-key-of-the-test", "a-secret-of-the-store"


@contextmanager
def s3() -> Iterator[Mapping[str, str]]:
    """Start a server; yields the options to reach it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield {
            "endpoint_override": f"{host}:{port}",
            "scheme": "http",
            "region": "us-east-1",
            "access_key": KEY,
            "secret_key": SECRET,
        }
    finally:
        server.stop()
