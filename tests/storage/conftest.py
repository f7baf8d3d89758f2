"""An S3 server of this machine, buckets on it, and a proxy before it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyarrow import fs

from raychains.core.retry import Patience
from raychains.store import Storage
from tests.storage.proxy import Proxy, proxy

_numbers = itertools.count()


@dataclass(frozen=True)
class Server:
    """Where the S3 server listens."""

    port: int

    def uri(self, bucket: str, port: int | None = None) -> str:
        """The URI that people give for a prefix in a bucket here."""
        return f"s3://{bucket}/some/prefix?scheme=http&endpoint_override=127.0.0.1:{port or self.port}&region=us-east-1"

    def filesystem(self, port: int | None = None, seconds: float = 60) -> fs.S3FileSystem:
        """A client without retries of its own, so that ours are what is seen; it gives up a silent server after
        ``seconds``."""
        return fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port or self.port}",
            scheme="http",
            region="us-east-1",
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
            connect_timeout=seconds,
            request_timeout=seconds,
            allow_bucket_creation=True,
        )


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """A moto server in this process; its clients' credentials come from the environment, as a user's do."""
    from moto import server as moto  # seconds, which only these tests need

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        yield Server(running.get_host_and_port()[1])
        running.stop()


@pytest.fixture
def bucket(server: Server) -> str:
    """The name of an empty bucket."""
    name = f"bucket{next(_numbers)}"
    server.filesystem().create_dir(name)
    return name


@pytest.fixture
def between(server: Server) -> Iterator[Proxy]:
    """A proxy before the server."""
    with proxy(server.port) as running:
        yield running


QUICK = Patience(first=0.01, cap=0.05, total=600.0)
"""Waits that a test can afford; the total is a deadline that no passing test comes near."""


@pytest.fixture
def direct(server: Server, bucket: str) -> Storage:
    """The bucket's store as a healthy client sees it."""
    return Storage(server.uri(bucket), server.filesystem())


@pytest.fixture
def shaky(server: Server, bucket: str, between: Proxy) -> Storage:
    """The same store through the proxy."""
    return Storage(server.uri(bucket), server.filesystem(between.port), patience=QUICK)
