"""`sie doctor --cluster`: what a cluster lacks, with a remedy for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
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

    exported: Mapping[str, Any] = {}
    if settings.config_service_url is None:
        yield Finding("skipped", "config service", "SIE_CONFIG_SERVICE_URL is not set")
    else:
        try:
            with config_service(settings) as service:
                yield from asked.config_service(service, settings.admin_token is not None)
                exported = service.ask("GET", "/v1/configs/export")
                yield ok("config service, configs", f"epoch {exported['epoch']}, {len(exported['models'])} models")
        except click.ClickException as error:
            yield asked.told_by(error, "config service")
    if settings.gateway_url is None:
        yield Finding("skipped", "gateway", "SIE_GATEWAY_URL is not set")
    else:
        token = settings.auth_token
        try:
            with Service("SIE_GATEWAY_URL", settings.gateway_url, token, token_variable="SIE_AUTH_TOKEN") as service:
                yield from asked.gateway(service, exported)
        except click.ClickException as error:
            yield asked.told_by(error, "gateway")
    if settings.nats_url is None:
        yield Finding("skipped", "broker", "SIE_NATS_URL is not set")
    else:
        named = {each["pool"] for each in exported.get("models", ())}
        pools = {settings.pool, *named} - {DEFAULT_POOL}
        yield from connected.broker(settings, plugins, sorted(pools))
    if settings.payload_store_url is None:
        yield Finding("skipped", "payload store", "SIE_PAYLOAD_STORE_URL is not set")
    else:
        yield from connected.payload_store(settings, plugins)
    if prometheus_url is None:
        yield Finding("skipped", "Prometheus", "--prometheus names none")
    else:
        yield from asked.prometheus(prometheus_url)
