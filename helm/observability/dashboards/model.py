"""What one model costs: requests, tokens, batches, loads, truncation."""

from __future__ import annotations

from building import MODEL, RATE, Panel, dashboard, quantile, quantiles, write

DASHBOARD = dashboard(
    "sie-model",
    "SIE: model",
    [
        [
            Panel(
                "Requests by outcome",
                "reqps",
                [
                    (
                        f"sum by (operation, outcome) (rate(sie_requests_total{{{MODEL}}}{RATE}))",
                        "{{operation}} {{outcome}}",
                    )
                ],
            ),
            Panel(
                "Tokens",
                "short",
                [
                    (
                        f"sum by (model, operation) (rate(sie_input_tokens_total{{{MODEL}}}{RATE}))",
                        "{{model}} {{operation}}",
                    )
                ],
            ),
            Panel("Items", "short", [(f"sum by (model) (rate(sie_items_total{{{MODEL}}}{RATE}))", "{{model}}")]),
        ],
        [
            Panel(
                "Time of a stage, p99",
                "s",
                [
                    (
                        quantile(0.99, "sie_request_stage_seconds", "stage", MODEL),
                        "{{stage}}",
                    ),
                ],
            ),
            Panel("Time of a batch", "s", quantiles("sie_batch_seconds", MODEL)),
        ],
        [
            Panel("Cost of a batch", "short", quantiles("sie_batch_cost", MODEL)),
            Panel("Requests of a batch", "short", quantiles("sie_batch_requests", MODEL)),
            Panel(
                "Batches that failed",
                "short",
                [(f"sum by (model, reason) (rate(sie_batch_failures_total{{{MODEL}}}{RATE}))", "{{model}} {{reason}}")],
            ),
        ],
        [
            Panel(
                "Loads",
                "short",
                [
                    (
                        f"sum by (model, outcome) (increase(sie_model_loads_total{{{MODEL}}}{RATE}))",
                        "{{model}} {{outcome}}",
                    )
                ],
            ),
            Panel(
                "Stages of the last load",
                "s",
                [(f"max by (model, stage) (sie_model_load_stage_seconds{{{MODEL}}})", "{{model}} {{stage}}")],
            ),
            Panel("Wait for a load", "s", quantiles("sie_model_cold_start_seconds", MODEL)),
            Panel(
                "First request after a load",
                "s",
                [(f"max by (model) (sie_model_first_batch_seconds{{{MODEL}}})", "{{model}}")],
            ),
            Panel("Memory", "bytes", [(f"max by (model) (sie_model_memory_bytes{{{MODEL}}})", "{{model}}")]),
        ],
        [
            Panel(
                "Items that were cut",
                "short",
                [(f"sum by (model) (rate(sie_truncated_items_total{{{MODEL}}}{RATE}))", "{{model}}")],
            ),
            Panel(
                "Items refused for NaN",
                "short",
                [(f"sum by (model) (rate(sie_non_finite_outputs_total{{{MODEL}}}{RATE}))", "{{model}}")],
            ),
            Panel(
                "Units that never ran",
                "short",
                [(f"sum by (model, reason) (rate(sie_dropped_units_total{{{MODEL}}}{RATE}))", "{{model}} {{reason}}")],
            ),
        ],
    ],
    ("model",),
)

if __name__ == "__main__":
    write("model", DASHBOARD)
