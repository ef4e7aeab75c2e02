"""Translates a user's access to subjects of NATS and JetStream, and writes the configuration of a broker for such
users.
"""

from __future__ import annotations

import json
from typing import Any

from sie_core.contracts import Access, BrokerPlan
from sie_nats.options import inbox_of
from sie_nats.stores.watching import told_subject
from sie_nats.streams import spare_subject

MAX_PAYLOAD = 1 << 20
API = "$JS.API."


def permissions(access: Access) -> dict[str, dict[str, list[str]]]:
    """Write a user's permissions to publish and subscribe.

    Only users that declare a stream may create and change it. Its settings could make the broker store messages of any
    subject, or republish stored ones to any other.
    """
    publish = [*access.sends, *(f"{inbox_of(each)}.>" for each in access.answers)]
    for queue in access.fills:
        publish += (*queue.subjects, spare_subject(queue.name))
        publish += [f"{API}STREAM.{verb}.{queue.name}" for verb in ("INFO", "MSG.GET", "MSG.DELETE")]
        publish.append(f"{API}CONSUMER.INFO.{queue.name}.*")
    for queue in access.declares:
        publish += [f"{API}STREAM.{verb}.{queue.name}" for verb in ("INFO", "CREATE", "UPDATE")]
    for store in access.declares_stores:
        publish += [f"{API}STREAM.{verb}.KV_{store}" for verb in ("INFO", "CREATE", "UPDATE")]
    for queue in access.pulls:
        publish += [f"{API}STREAM.INFO.{queue.name}", f"$JS.ACK.{queue.name}.>"]
        publish += [f"{API}CONSUMER.{verb}.{queue.name}.>" for verb in ("CREATE", "INFO", "MSG.NEXT")]
    for store in (*access.keeps, *access.reads):
        publish += [f"{API}STREAM.{verb}.KV_{store}" for verb in ("INFO", "MSG.GET")]
    for store in access.keeps:
        publish += [f"{API}STREAM.CREATE.KV_{store}", f"$KV.{store}.>"]
    for journal in access.declares_journals:
        publish += [f"{API}STREAM.{verb}.{journal}" for verb in ("INFO", "CREATE", "UPDATE")]
    for journal in access.writes_journals:
        publish += [f"{API}STREAM.INFO.{journal}", f"{API}DIRECT.GET.{journal}", f"{journal}.>"]
    stores = dict.fromkeys((*access.keeps, *access.reads))
    hear = [f"{inbox_of(access.user)}.>", *access.hears, *(told_subject(store, ">") for store in stores)]
    # An empty list of what is allowed would allow everything.
    sends = {"allow": list(dict.fromkeys(publish))} if publish else {"deny": [">"]}
    return {"publish": sends, "subscribe": {"allow": hear}}


def broker_config(plan: BrokerPlan) -> str:
    """Write the broker's configuration as JSON, which its own language includes."""
    users: list[dict[str, Any]] = [
        {"user": each.user, "password": plan.passwords[each.user], "permissions": permissions(each)}
        for each in plan.users
    ]
    config = {
        "host": plan.host,
        "port": plan.port,
        "max_payload": MAX_PAYLOAD,
        "jetstream": {"store_dir": str(plan.folder)},
        "authorization": {"users": users},
    }
    return json.dumps(config, indent=2) + "\n"
