"""How servers do: rate, errors, times by stage, saturation."""

from __future__ import annotations

from building import OF, RATE, Panel, dashboard, quantile, quantiles, write

DASHBOARD = dashboard(
    "sie-overview",
    "SIE: overview",
    [
        [
            Panel(
                "Requests by route",
                "reqps",
                [(f"sum by (route) (rate(sie_http_requests_total{{{OF}}}{RATE}))", "{{route}}")],
            ),
            Panel(
                "Errors by code", "reqps", [(f"sum by (code) (rate(sie_http_errors_total{{{OF}}}{RATE}))", "{{code}}")]
            ),
        ],
        [
            Panel("Time of a request", "s", quantiles("sie_http_request_seconds", OF)),
            Panel(
                "Time of a stage, p99",
                "s",
                [
                    (
                        quantile(0.99, "sie_request_stage_seconds", "stage", OF),
                        "{{stage}}",
                    )
                ],
            ),
        ],
        [
            Panel("In flight", "short", [(f"sum by (instance) (sie_requests_in_flight{{{OF}}})", "{{instance}}")]),
            Panel("Queued units", "short", [(f"sum by (instance) (sie_queue_units{{{OF}}})", "{{instance}}")]),
            Panel(
                "Live",
                "short",
                [(f"min by (instance) (sie_live{{{OF}}})", "{{instance}}")],
                "0 while only a restart helps.",
            ),
        ],
        [
            Panel(
                "CPU", "short", [(f"sum by (instance) (rate(process_cpu_seconds_total{{{OF}}}{RATE}))", "{{instance}}")]
            ),
            Panel(
                "Resident memory",
                "bytes",
                [(f"sum by (instance) (process_resident_memory_bytes{{{OF}}})", "{{instance}}")],
            ),
        ],
    ],
    (),
)

if __name__ == "__main__":
    write("overview", DASHBOARD)
