"""What an autoscaler reads of gateways, and what clients were told meanwhile."""

from __future__ import annotations

from building import LANE, OF, RATE, Panel, dashboard, write

BY = "machine_profile, bundle"
LEGEND = "{{machine_profile}} {{bundle}}"

DASHBOARD = dashboard(
    "sie-autoscaling",
    "SIE: autoscaling",
    [
        [
            Panel(
                "Requests without a worker",
                "short",
                [(f"sum by ({BY}) (sie_gateway_pending_demand{{{LANE}}})", LEGEND)],
                "At least one worker is needed where it is above 0.",
            ),
            Panel(
                "Age of the oldest request",
                "s",
                [(f"max by ({BY}) (sie_gateway_queue_age_seconds{{{LANE}}})", LEGEND)],
            ),
            Panel(
                "Queued and running items", "bytes", [(f"sum by ({BY}) (sie_gateway_queued_cost{{{LANE}}})", LEGEND)]
            ),
        ],
        [
            Panel("Workers by standing", "short", [(f"max by (status) (sie_gateway_workers{{{OF}}})", "{{status}}")]),
            Panel(
                "Slices that workers hold",
                "short",
                [(f"max by ({BY}) (sie_gateway_worker_queue_depth{{{LANE}}})", LEGEND)],
            ),
            Panel("GPUs leased", "short", [(f"max by ({BY}) (sie_gateway_active_lease_gpus{{{LANE}}})", LEGEND)]),
        ],
        [
            Panel(
                "Requests told to come back",
                "reqps",
                [(f"sum by ({BY}) (rate(sie_gateway_provisioning_responses_total{{{LANE}}}{RATE}))", LEGEND)],
            ),
            Panel(
                "Requests refused by reason",
                "reqps",
                [(f"sum by (reason) (rate(sie_gateway_rejected_requests_total{{{OF}}}{RATE}))", "{{reason}}")],
            ),
        ],
    ],
    ("machine_profile", "bundle"),
)

if __name__ == "__main__":
    write("autoscaling", DASHBOARD)
