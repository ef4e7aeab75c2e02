"""What a device has left: memory, evictions, queue, predictions."""

from __future__ import annotations

from building import MODEL, OF, RATE, Panel, dashboard, quantiles, write

DASHBOARD = dashboard(
    "sie-capacity",
    "SIE: capacity",
    [
        [
            Panel(
                "Device memory",
                "bytes",
                [
                    (f"sum by (instance) (sie_device_memory_used_bytes{{{OF}}})", "used {{instance}}"),
                    (f"sum by (instance) (sie_device_memory_total_bytes{{{OF}}})", "total {{instance}}"),
                ],
            ),
            Panel(
                "Evictions",
                "short",
                [
                    (
                        f"sum by (model, reason) (increase(sie_model_evictions_total{{{MODEL}}}{RATE}))",
                        "{{model}} {{reason}}",
                    )
                ],
            ),
        ],
        [
            Panel("Queued cost", "short", [(f"sum by (instance) (sie_queue_cost{{{OF}}})", "{{instance}}")]),
            Panel(
                "Busy share of the device",
                "percentunit",
                [
                    (f"sum by (instance) (rate(sie_batch_seconds_sum{{{OF}}}{RATE}))", "{{instance}}"),
                ],
            ),
            Panel(
                "Cost that was wasted",
                "percentunit",
                [
                    (
                        f"sum by (instance) (rate(sie_wasted_cost_total{{{OF}}}{RATE})) / "
                        f"sum by (instance) (rate(sie_batch_cost_sum{{{OF}}}{RATE}))",
                        "{{instance}}",
                    ),
                ],
                "The share that ran for requests that ended meanwhile, mostly cancelled ones.",
            ),
            Panel(
                "Measured over predicted seconds",
                "short",
                quantiles("sie_batch_prediction_ratio", MODEL),
                "Needs SIE_INSTRUMENTATION=true.",
            ),
        ],
        [
            Panel(
                "Unloads",
                "short",
                [(f"sum by (model) (increase(sie_model_unloads_total{{{MODEL}}}{RATE}))", "{{model}}")],
            ),
            Panel(
                "Fetches that stalled",
                "short",
                [(f"sum by (instance) (sie_model_fetches_stalled{{{OF}}})", "{{instance}}")],
            ),
            Panel(
                "Weights found, by tier",
                "short",
                [(f"sum by (tier) (increase(sie_weight_tier_hits_total{{{OF}}}{RATE}))", "{{tier}}")],
            ),
            Panel("Models that fail", "short", [(f"sum by (instance) (sie_models_failing{{{OF}}})", "{{instance}}")]),
        ],
    ],
    ("model",),
)

if __name__ == "__main__":
    write("capacity", DASHBOARD)
