"""A delta that is forged, damaged or stale changes nothing and is counted by its reason; what is known stays served."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from sie_cluster.configs.delta import LARGEST_TOLD
from sie_cluster.configs.polling import AGAIN_S, JITTER
from sie_cluster.queue.subjects import ALL_MODELS

from tests.cluster.configs.conftest import connected, following, settings_of
from tests.cluster.configs.registries import text_of
from tests.cluster.configs.service import SmallService, some_models

BOMB = "sie_id: org/evil\nhf_id: org/evil\na0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
DEEP = "sie_id: org/evil\nhf_id: " + "[" * 5_000 + "\n"
Forge = Callable[[dict[str, Any]], bytes]


def forged(**changed: Any) -> Forge:
    return lambda told: json.dumps({**told, **changed}).encode()


FORGED: list[tuple[str, str, Forge]] = [
    ("an untrusted producer", "untrusted", forged(router_id="sie-configuration")),
    ("a wrong hash of its bundle", "wrong_hash", forged(bundle_config_hash="0" * 64)),
    ("a wrong hash of another bundle", "wrong_hash", lambda told: json.dumps(
        {**told, "bundle_config_hashes": {**told["bundle_config_hashes"], "other": "0" * 64}}).encode()),
    ("another config than its hashes are of", "wrong_hash", forged(model_config=text_of("org/evil", hf_revision="x"))),
    ("a removal that its hashes know nothing of", "wrong_hash", forged(model_id="org/a", deleted=True)),
    ("the epoch that is known", "old_epoch", forged(epoch=5, previous_epoch=4)),
    ("an epoch of long ago", "old_epoch", forged(epoch=1, previous_epoch=0)),
    ("an epoch far ahead", "gap", forged(epoch=2**62)),
    ("a predecessor that is unknown", "gap", forged(epoch=8, previous_epoch=7)),
    ("other bundles", "bundles", forged(bundles_hash="0" * 64)),
    ("a YAML bomb", "config", forged(model_config=BOMB)),
    ("deep YAML", "config", forged(model_config=DEEP)),
    ("a config of another model", "config", forged(model_config=text_of("org/other"))),
    ("a config with an unknown field", "config", forged(model_config=text_of("org/evil", import_path="os:system"))),
    ("a config that names a file beside it", "config", forged(model_config="{sie_id: org/evil, weights_path: ../x}")),
    ("a config that is too large", "too_large", forged(model_config="x" * (LARGEST_TOLD + 1))),
    ("deep JSON", "unreadable", lambda told: b'{"a":' * 100_000),
    ("a frame of something else", "unreadable", lambda told: b"SIE\x01\x00"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "forge"), [each[1:] for each in FORGED], ids=[each[0] for each in FORGED])
async def test_a_forged_delta_changes_nothing_and_is_counted(
    service: SmallService, url: str, reason: str, forge: Forge
) -> None:
    settings = settings_of(url)
    honest = SmallService(some_models())
    told = json.loads(honest.change("org/evil", text_of("org/evil"))[0][1])
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: one.epoch == 5)
        await transport.send(ALL_MODELS, forge(told))
        await one.until(lambda: one.count("deltas", reason) == 1)
        assert one.count("deltas", "applied") == 0
        assert list(one.told[-1].routes) == ["org/a", "other/b"]
        assert (one.told[-1].config_hashes, one.epoch) == (service.registry.config_hashes, 5)
        await service.tell(transport, "org/new", text_of("org/new"))
        await one.until(lambda: one.epoch == 6)


async def test_who_is_not_trusted_makes_nobody_ask_the_service_and_who_is_does_so_seldom(
    service: SmallService, url: str
) -> None:
    settings = settings_of(url)
    honest = SmallService(some_models())
    told = json.loads(honest.change("org/evil", text_of("org/evil"))[0][1])
    async with connected(settings) as transport, following(settings, transport) as one:
        await one.until(lambda: one.epoch == 5)
        asked = len(service.asked)
        for _ in range(50):
            await transport.send(ALL_MODELS, forged(router_id="worker")(told))
        await one.until(lambda: one.count("deltas", "untrusted") == 50)
        assert len(service.asked) == asked
        began = time.monotonic()
        for _ in range(50):
            await transport.send(ALL_MODELS, forged(bundle_config_hash="0" * 64)(told))
        await one.until(lambda: one.count("deltas", "wrong_hash") == 50 and service.exports >= 2)
        looks = 2 + (time.monotonic() - began) / (AGAIN_S * (1 - JITTER))
        assert service.exports <= looks
