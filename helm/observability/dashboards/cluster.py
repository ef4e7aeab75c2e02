"""Gateways, queue and workers of a cluster."""

from __future__ import annotations

from building import OF, RATE, Panel, dashboard, write

DASHBOARD = dashboard(
    "sie-cluster",
    "SIE: cluster",
    [
        [
            Panel("Workers by standing", "short", [(f"max by (status) (sie_gateway_workers{{{OF}}})", "{{status}}")]),
            Panel(
                "Requests that wait for workers",
                "short",
                [(f"sum by (instance) (sie_gateway_requests_queued{{{OF}}})", "{{instance}}")],
            ),
        ],
        [
            Panel(
                "Slices sent once more, cancelled, refused",
                "short",
                [
                    (f"sum(rate(sie_gateway_slices_again_total{{{OF}}}{RATE}))", "again"),
                    (f"sum(rate(sie_gateway_slices_cancelled_total{{{OF}}}{RATE}))", "cancelled"),
                    (f"sum(rate(sie_gateway_dead_letters_total{{{OF}}}{RATE}))", "dead letters"),
                ],
            ),
            Panel(
                "Slices of sidecars",
                "short",
                [(f"sum by (instance) (rate(sie_sidecar_slices_pulled_total{{{OF}}}{RATE}))", "{{instance}}")],
            ),
            Panel("Slices held", "short", [(f"sum by (instance) (sie_sidecar_slices_held{{{OF}}})", "{{instance}}")]),
        ],
        [
            Panel(
                "Adapter processes that take work",
                "short",
                [(f"min by (instance) (sie_sidecar_adapter_up{{{OF}}})", "{{instance}}")],
            ),
            Panel("Epoch of the configs", "short", [(f"max by (instance) (sie_config_epoch{{{OF}}})", "{{instance}}")]),
        ],
    ],
    (),
)

if __name__ == "__main__":
    write("cluster", DASHBOARD)
