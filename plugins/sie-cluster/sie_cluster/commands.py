"""The commands of `sie` that this distribution brings. Importing it loads nothing of the cluster."""

from __future__ import annotations

from typing import Final

from sie_core.commands import Command

COMMANDS: Final = (
    Command(
        "cluster",
        "Run a whole cluster on this machine, or write the configuration of its broker.",
        "sie_cluster.cli.cluster:command",
    ),
    Command(
        "config",
        "Run the config service, which keeps a cluster's model configs; apply, export and restore these.",
        "sie_cluster.cli.config:command",
    ),
    Command("doctor", "Look for what a cluster lacks, with a remedy for each.", "sie_cluster.cli.doctor:command"),
    Command("gateway", "Serve the HTTP API over a queue; workers run the models.", "sie_cluster.cli.gateway:command"),
    Command("migrate", "Bring what was written for other releases to this one.", "sie_cluster.cli.migrate:command"),
    Command(
        "sidecar",
        "Pull work from the queue, have the adapter process on this machine do it, and answer.",
        "sie_cluster.cli.sidecar:command",
    ),
    Command(
        "worker",
        "Run models for the sidecar on this machine, which pulls their work from the queue.",
        "sie_cluster.cli.worker:command",
    ),
)
