"""Where a store is: a local path or a URI taken apart into filesystem, folder and what people may see of it."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from raychains.errors import UserError
from raychains.retry import first_line, is_transient

FLAT = ("s3", "gcs")
"""Kinds of filesystem without folders: creating one would leave an empty object."""
ATTEMPTS = 2
"""Times that an S3 client tries a request by itself."""
RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""What Ray sets in the process of a submitted job, and in no actor: the job's settings as JSON."""
_SECRET = re.compile(r"key|secret|token|password|credential|sas|sig", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Address:
    """A store's folder.

    ``uri`` opens it again elsewhere; ``shown`` is its part up to the query without user and password, and ``query`` what
    follows its names, without secrets.
    """

    filesystem: Any
    base: str
    uri: str
    shown: str
    query: str = ""


def locate(uri: str | os.PathLike[str], filesystem: Any = None) -> Address:
    """The address in a local path or URI.

    Args:
        uri: as people give it.
        filesystem: used instead of the one that the URI names.

    Raises:
        UserError: the URI's filesystem is unknown, or it names no bucket.
        OSError: the storage could not be reached.
    """
    text = os.fspath(uri)
    if not text or any(unicodedata.category(c) in ("Cc", "Cs") for c in text):
        raise UserError(f"store must be a local path or a URI, without control characters, got {text!r}")
    if "://" not in text:
        base = _home(text)
        if filesystem is not None and filesystem.type_name in FLAT:
            base = text.strip("/")
        return _checked(filesystem or fs.LocalFileSystem(), base, base, base)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UserError(f"store must be a local path or a URI that pyarrow knows, got {text!r}: {error}") from None
    path = parts.netloc.rpartition("@")[2] + parts.path
    shown = f"{parts.scheme}://{path}".rstrip("/")
    if filesystem is None:
        try:
            filesystem, base = fs.FileSystem.from_uri(text)
            filesystem = _impatient(filesystem)
        except (ValueError, OSError) as error:
            if is_transient(error):
                raise
            said = first_line(error).replace(text, shown)
            raise UserError(f"store must be a local path or a URI that pyarrow knows, got {shown!r}: {said}") from None
    else:
        base = path
    uri = text if parts.query else text.rstrip("/")
    query = "&".join(part for part in parts.query.split("&") if not _SECRET.search(part.partition("=")[0]))
    return _checked(filesystem, base, uri, shown, f"?{query}" if query else "")


def _impatient(filesystem: Any) -> Any:
    """The same S3 client with few retries of its own: by default it holds a caller for a hundred seconds (measured)."""
    if filesystem.type_name != "s3":
        return filesystem
    settings = filesystem.__reduce__()[1][0]  # what pickling keeps; credentials only when the URI holds them
    given = {k: v for k, v in settings.items() if k != "proxy_options" and v not in ("", None) and v != -1.0}
    return fs.S3FileSystem(**given, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS))


def _home(text: str) -> str:
    """A local path made absolute, with ``~`` for a home."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # the home of nobody
        raise UserError(f"store must be a local path or a URI, got {text!r}: {error}") from None
    if not path.is_absolute() and _in_uploaded_folder(os.environ):
        raise UserError(
            f"store must be an absolute path or a URI (s3://bucket/prefix) in a Ray job, got {text!r}: the job's folder is "
            "Ray's copy of the working directory, which Ray deletes"
        )
    return str(path.absolute())


def _in_uploaded_folder(environ: Mapping[str, str]) -> bool:
    """Whether this is the process of a Ray job whose current folder was uploaded with it."""
    try:
        return bool(json.loads(environ[RAY_JOB])["runtime_env"]["working_dir"])
    except (KeyError, ValueError, TypeError):
        return False


def _checked(filesystem: Any, base: str, uri: str, shown: str, query: str = "") -> Address:
    base = base.rstrip("/") or "/"
    if filesystem.type_name in FLAT and base == "/":
        raise UserError(f"store must name a bucket, as in s3://bucket/prefix, got {shown!r}")
    return Address(filesystem=filesystem, base=base, uri=uri, shown=shown, query=query)
