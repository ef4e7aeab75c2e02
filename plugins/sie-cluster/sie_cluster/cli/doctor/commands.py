"""`sie doctor --cluster`: what a cluster lacks, with a remedy for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sie_core.cli.composition.program import program

if TYPE_CHECKING:
    from sie_cluster.cli.doctor.findings import Finding
    from sie_cluster.settings import ClusterSettings
    from sie_core.plugins import PluginSet


@click.command("doctor")
@click.option("--cluster", is_flag=True, help="Check a cluster; `sie plugins` and `sie models` check this machine.")
@click.option("--service", "config_service_url", help="URL of the config service.")
@click.option("--gateway", "gateway_url", help="URL of a gateway.")
@click.option("--prometheus", "prometheus_url", help="URL of the Prometheus that a scaler asks.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
def command(cluster: bool, prometheus_url: str | None, as_json: bool, **options: Any) -> None:
    """Look for what a cluster lacks, with a remedy for each.

    Addresses, tokens, versions, clocks, queues, stores, configs and demand are checked: of what
    `SIE_CONFIG_SERVICE_URL`, `SIE_GATEWAY_URL`, `SIE_NATS_URL` and `SIE_PAYLOAD_STORE_URL` name, with the tokens and
    logins that are set, so that it runs in a pod as on a laptop. Nothing is changed. Exits with 1 where something is
    wrong.
    """
    from sie_cluster.settings import ClusterSettings

    if not cluster:
        raise click.UsageError("Give --cluster; `sie plugins` and `sie models` say what this machine lacks.")
    with program(model=ClusterSettings, **{"log_level": "ERROR", **options}) as (settings, plugins):
        findings = []
        for each in _findings(settings, plugins, prometheus_url):
            findings.append(each)
            if not as_json:
                _show(each)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in findings], indent=2))
    if any(each.state == "wrong" for each in findings):
        click.get_current_context().exit(1)


def _show(found: Finding) -> None:
    click.echo(f"{found.state:<7}  {found.subject}: {found.told}{'' if found.told.endswith('.') else '.'}")
    if found.remedy:
        click.echo(f"{'':9}{found.remedy}")


def _findings(settings: ClusterSettings, plugins: PluginSet, prometheus_url: str | None) -> Iterator[Finding]:
    from sie_cluster.cli.config.applying import config_service
    from sie_cluster.cli.doctor import asked, connected
    from sie_cluster.cli.doctor.findings import Finding, ok
    from sie_cluster.cli.services import Service
    from sie_core.contracts.model.config import DEFAULT_POOL

    exported: dict[str, Any] = {}

    def of_config_service() -> Iterator[Finding]:
        with config_service(settings) as service:
            yield from asked.config_service(service, settings.admin_token is not None)
            exported.update(service.ask("GET", "/v1/configs/export"))
            yield ok("config service, configs", f"epoch {exported['epoch']}, {len(exported['models'])} models")

    def of_gateway() -> Iterator[Finding]:
        token = settings.auth_token
        with Service("SIE_GATEWAY_URL", settings.gateway_url, token, token_variable="SIE_AUTH_TOKEN") as service:
            yield from asked.gateway(service, exported)

    def of_broker() -> Iterator[Finding]:
        named = {each["pool"] for each in exported.get("models", ())}
        yield from connected.broker(settings, plugins, sorted({settings.pool, *named} - {DEFAULT_POOL}))

    for subject, variable, named, look in (
        ("config service", "SIE_CONFIG_SERVICE_URL", settings.config_service_url, of_config_service),
        ("gateway", "SIE_GATEWAY_URL", settings.gateway_url, of_gateway),
        ("broker", "SIE_NATS_URL", settings.nats_url, of_broker),
        ("payload store", "SIE_PAYLOAD_STORE_URL", settings.payload_store_url,
         partial(connected.payload_store, settings, plugins)),
        ("Prometheus", "--prometheus", prometheus_url, partial(asked.prometheus, str(prometheus_url))),
    ):  # fmt: skip
        if named is None:
            yield Finding("skipped", subject, f"{variable} is not set")
            continue
        try:
            yield from look()
        except click.ClickException as error:
            yield asked.told_by(error, subject)
