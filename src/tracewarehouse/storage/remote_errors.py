"""Errors of object stores as errors of the operating system, with a hint and without credentials."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tracewarehouse.errors import StoreUnavailable, WarehouseError
from tracewarehouse.location import StoreUrl

_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use an instance role",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or use a service account of the machine",
}
_AZURE = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or use a managed identity"
_WEB = "the server must answer without credentials"
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist", re.IGNORECASE)
_DENIED = re.compile(r"\b(401|403)\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch", re.IGNORECASE)
_NO_CREDENTIALS = re.compile(r"169\.254\.169\.254|metadata\.google|credential|Account must be", re.IGNORECASE)
_PLAIN_HTTP = re.compile(r"builder error|BadScheme", re.IGNORECASE)
_SILENT = re.compile(
    r"error sending request|timed out|timeout|connection|dns|retries|\b5\d\d\b|429", re.IGNORECASE
)


def missing_package(place: StoreUrl) -> WarehouseError:
    """The error if obstore is not installed."""
    return WarehouseError(f"{place}: {place.scheme}:// needs obstore", "pip install 'tracewarehouse[cloud]'")


def hint_of(place: StoreUrl) -> str:
    """What to do if the store does not answer."""
    if place.is_web:
        return "check the URL and the network, and run it again"
    endpoint = "AWS_ENDPOINT_URL" if place.scheme == "s3" else "the network"
    return f"check {endpoint} and run it again; published runs are not affected"


@contextmanager
def store_errors(place: StoreUrl, key: str = "") -> Iterator[None]:
    """Turns errors of obstore into FileNotFoundError, FileExistsError or StoreUnavailable."""
    from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError

    where = f"{place}/{key}" if key else str(place)
    try:
        yield
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            raise _unavailable(place, where, str(error)) from None
        raise FileNotFoundError(errno.ENOENT, "no such object", where) from None
    except (AlreadyExistsError, PreconditionError, NotModifiedError):
        raise FileExistsError(errno.EEXIST, "the object exists", where) from None
    except BaseError as error:
        # `from None`: the text of obstore may contain signed URLs.
        raise _unavailable(place, where, f"{type(error).__name__}: {error}") from None


def _unavailable(place: StoreUrl, where: str, text: str) -> StoreUnavailable:
    credentials = _WEB if place.is_web else _CREDENTIALS.get(place.scheme, _AZURE)
    if _NO_BUCKET.search(text):
        return StoreUnavailable(f"{place}: no such bucket", "create it, or check the URL")
    if _PLAIN_HTTP.search(text):
        return StoreUnavailable(f"{place}: the endpoint is not encrypted", "AWS_ALLOW_HTTP=true allows http")
    if "PermissionDenied" in text or "Unauthenticated" in text or _DENIED.search(text):
        return StoreUnavailable(f"{where}: access denied", credentials)
    if _NO_CREDENTIALS.search(text):
        return StoreUnavailable(f"{place}: no credentials found", credentials)
    if _SILENT.search(text):
        return StoreUnavailable(f"{place}: the store does not answer", hint_of(place), is_transient=True)
    return StoreUnavailable(f"{where}: {_first_line(text)}", hint_of(place))


def _first_line(text: str) -> str:
    """The first line without query strings."""
    return re.sub(r"\?\S*", "", text.partition("\n")[0])
