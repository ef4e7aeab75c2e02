"""The checks of what answers over HTTP: config service, gateway and Prometheus, and what they say of one another."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import click
import httpx

from sie_cluster.cli.doctor.findings import Finding, ok, wrong
from sie_cluster.cli.services import Service
from sie_core import __version__

SKEW_S = 2.0
"""Clocks may differ by so much: answers tell whole seconds, and take a while."""
NOBODY = "sie-doctor/nobody"
"""A model that does not exist: whoever may remove it may write configs, and nothing changes."""
DEMAND = "sie_gateway_pending_demand"


def reached(service: Service, subject: str) -> Iterator[Finding]:
    """Check that a service answers, is ready, of this version, and has this machine's time.

    Raises:
        Away: It does not answer.
    """
    reply = service.send("GET", "/readyz")
    if reply.status_code == 200:
        yield ok(subject, f"{service.url} is ready")
    else:
        remedy = "The reason says what it waits for; its log has more."
        yield wrong(subject, f"{service.url}/readyz answers {reply.status_code}: {reply.text[:300]}", remedy)
    yield from _clock(reply, subject)
    version = service.send("GET", "/v1/configs/epoch").headers.get("x-sie-server-version", "unknown")
    if version == __version__:
        yield ok(f"{subject}, version", version)
    else:
        told = f"it runs {version}, and this command is of {__version__}"
        yield Finding("note", f"{subject}, version", told, "Finish the upgrade, or run the command of that version.")


def _clock(reply: httpx.Response, subject: str) -> Iterator[Finding]:
    there, here = parsedate_to_datetime(reply.headers["date"]).timestamp(), time.time()
    off_s = there - here
    if abs(off_s) <= SKEW_S + reply.elapsed.total_seconds():
        yield ok(f"{subject}, clock", f"within {SKEW_S:g} s of this machine's")
    else:
        yield wrong(f"{subject}, clock", f"{off_s:+.0f} s from this machine's", "Have both follow NTP.")


def config_service(service: Service, writes: bool) -> Iterator[Finding]:
    """Check the config service.

    Args:
        service: It.
        writes: Whether the token is one that writes.

    Raises:
        ClickException: It does not answer, or refuses the token.
    """
    yield from reached(service, "config service")
    told = service.send("GET", "/metrics").text
    numbers = {name: float(value) for name, value in re.findall(r"^(sie_config_\w+) (\S+)$", told, re.MULTILINE)}
    if numbers.get("sie_config_broker_connected") == 0:
        remedy = "Writes are refused until SIE_NATS_URL of the config service leads to one; without it, this is meant."
        yield Finding("note", "config service, broker", "it has no connection to a broker", remedy)
    behind = numbers.get("sie_config_epoch", 0) - numbers.get("sie_config_backup_epoch", 0)
    if behind:
        remedy = "Its log says why SIE_CONFIG_STORE_DIR of the config service cannot be written."
        yield wrong("config service, store", f"the backup lacks the last {behind:g} writes", remedy)
    else:
        yield ok("config service, store", "the backup has every write")
    if writes:
        service.ask("DELETE", f"/v1/configs/models/{NOBODY}")
        yield ok("config service, admin token", "may write")


def gateway(service: Service, exported: Mapping[str, Any]) -> Iterator[Finding]:
    """Check a gateway, and what it and its workers know of the configs.

    Args:
        service: The gateway.
        exported: By the config service; empty where it was not asked.

    Raises:
        ClickException: It does not answer, or refuses the token.
    """
    yield from reached(service, "gateway")
    health = service.ask("GET", "/health")
    yield ok("gateway, token", "may ask")
    for problem in health["problems"]:
        yield wrong("gateway, health", str(problem), "docs/operate/cluster/operate.md has a line for it.")
    if not exported:
        return
    epoch = service.ask("GET", "/v1/configs/epoch")["epoch"]
    if epoch == exported["epoch"]:
        yield ok("gateway, configs", f"epoch {epoch}, as the config service")
    else:
        remedy = "It follows within SIE_WORKER_CONFIG_POLL_INTERVAL_MS; otherwise see SIE_CONFIG_SERVICE_URL there."
        yield wrong("gateway, configs", f"epoch {epoch}; the config service is at {exported['epoch']}", remedy)
    yield from _workers(health["workers"], exported)


def _workers(workers: list[Mapping[str, Any]], exported: Mapping[str, Any]) -> Iterator[Finding]:
    hashes = exported["bundle_config_hashes"]
    for each in workers:
        subject, bundle = f"worker {each['name']}", each["bundle"]
        if not each["healthy"]:
            yield wrong(subject, "takes no work", "/readyz of its worker and of its sidecar say why.")
        elif bundle not in hashes:
            remedy = f"Set SIE_BUNDLE there to one of {', '.join(hashes)}, or give the config service that bundle."
            yield wrong(subject, f"its bundle {bundle} is unknown to the config service", remedy)
        elif each["bundle_config_hash"] != hashes[bundle]:
            remedy = "Its sidecar follows within a poll; otherwise see SIE_CONFIG_SERVICE_URL of the sidecar."
            yield wrong(subject, f"has other configs of bundle {bundle} than the config service", remedy)
        else:
            yield ok(subject, f"has the configs of bundle {bundle}")
    staffed, served = {each["bundle"] for each in workers}, dict[str, int]()
    for model in exported["models"]:
        for bundle in model["affected_bundles"][:1]:
            served[bundle] = served.get(bundle, 0) + 1
    for bundle in sorted(served.keys() - staffed):
        told = f"serves {served[bundle]} models and has no worker now"
        yield Finding("note", f"bundle {bundle}", told, "Start one, unless a scaler starts one by demand.")


def prometheus(url: str) -> Iterator[Finding]:
    """Check that a Prometheus has the demand that a scaler reads."""
    try:
        reply = httpx.get(f"{url.rstrip('/')}/api/v1/query", params={"query": DEMAND}, timeout=10, trust_env=False)
        found = reply.json()["data"]["result"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        yield wrong("Prometheus", f"{url} gives no answer: {str(error)[:200]}", "Name its URL by --prometheus.")
        return
    if found:
        sets = sorted("{machine_profile}/{bundle}".format(**each["metric"]) for each in found)
        yield ok("Prometheus", f"{DEMAND} of {', '.join(dict.fromkeys(sets))}")
    else:
        remedy = "Have it scrape /metrics of the gateways (serviceMonitor.enabled of the chart), with SIE_AUTH_TOKEN."
        yield wrong("Prometheus", f"{url} has no series {DEMAND}: a scaler sees no demand", remedy)


def told_by(error: click.ClickException, subject: str) -> Finding:
    """Make the finding of a service that gives no answer."""
    return wrong(
        subject,
        error.message,
        "Correct the address or the token (in the chart's NOTES, in the folder of `sie cluster up`), or start it.",
    )
