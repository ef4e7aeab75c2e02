"""Translates store errors into the contract's failures, and tells which are transient.

The store's own texts contain URLs and are left out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from obstore import exceptions

from sie_core.contracts import ObjectStoreError

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of the machine or the pod",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the service account of the machine or the pod",
    "az": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, or the identity of the machine or the pod",
}
ENDPOINTS = {"s3": " (AWS_ENDPOINT_URL, AWS_REGION)", "gs": "", "az": " (AZURE_STORAGE_ENDPOINT)"}
_REFUSED = re.compile(r"\b(40[13]) (?:Unauthorized|Forbidden)\b")
_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})|HTTP status \w+ error \((\d{3})")


@contextlib.contextmanager
def told(url: str, key: str) -> Iterator[None]:
    """Turn what obstore raises into the contract's error, with the store and the remedy named.

    Without a `key`, only the bucket itself may be missing.

    Raises:
        ObjectStoreError: Whatever failed in the store.
    """
    try:
        yield
    except FileNotFoundError as error:
        if error.errno is not None:  # of a local file
            raise
        raise _missing(url, key) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise _denied(url) from error
    except exceptions.BaseError as error:
        if _REFUSED.search(str(error)):
            raise _denied(url) from error
        why = _why(error)
        if why == "status 404":
            raise _missing(url, key) from error
        raise unavailable(url, why) from error


def unavailable(url: str, why: str) -> ObjectStoreError:
    """Make the error for a store that cannot be reached, or fails."""
    endpoint = ENDPOINTS.get(_scheme(url), "")
    return ObjectStoreError("UNAVAILABLE", f"{url} cannot be reached ({why}): check the endpoint{endpoint}, or wait")


def conflict(url: str, key: str) -> ObjectStoreError:
    """Make the error for a failed condition of a write."""
    return ObjectStoreError("CONFLICT", f"{url}: {key} was written by another meanwhile: read it again")


def _missing(url: str, key: str) -> ObjectStoreError:
    found = f"{url} has no {key}" if key else f"{url} is not there: check the bucket's name"
    return ObjectStoreError("NOT_FOUND", found)


def _denied(url: str) -> ObjectStoreError:
    return ObjectStoreError("DENIED", f"{url} refuses these credentials: check {CREDENTIALS[_scheme(url)]}")


def _why(error: BaseException) -> str:
    found = _STATUS.search(str(error))
    return f"status {found[1] or found[2]}" if found else "no answer"


def _scheme(url: str) -> str:
    return url.partition("://")[0]
