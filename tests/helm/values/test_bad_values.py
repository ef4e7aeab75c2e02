"""Values that cannot be: the install stops with their path and a sentence."""

from __future__ import annotations

import pytest
import yaml

from tests.helm.engine import CHART, Helm, RefusedError

SCHEMA = [
    ("{gateways: {}}", "additional properties 'gateways' not allowed"),
    ("{gateway: {replica: 3}}", "at '/gateway': additional properties 'replica' not allowed"),
    ("{gateway: {replicas: -1}}", "at '/gateway/replicas': minimum: got -1, want 1"),
    ("{gateway: {replicas: two}}", "at '/gateway/replicas': got string, want integer"),
    ("{gateway: {service: {port: 70000}}}", "at '/gateway/service/port': maximum: got 70,000, want 65,535"),
    ("{gateway: {service: {type: ExternalName}}}", "at '/gateway/service/type': value must be one of"),
    ("{gateway: {resources: {limits: {memory: plenty}}}}", "at '/gateway/resources/limits/memory'"),
    ("{gateway: {tolerations: [{key: a, operator: Is}]}}", "at '/gateway/tolerations/0/operator'"),
    ("{config: {replicas: 0}}", "at '/config/replicas': minimum: got 0, want 1"),
    ("{config: {configStore: {url: /store}}}", "at '/config/configStore/url': '/store' does not match pattern"),
    ("{config: {models: {a.txt: 'x'}}}", "at '/config/models': additional properties 'a.txt' not allowed"),
    ("{config: {configStore: {persistence: {accessMode: Once}}}}", "at '/config/configStore/persistence/accessMode'"),
    ("{nats: {replicas: 2}}", "at '/nats/replicas': value must be one of 1, 3"),
    ("{nats: {enabled: false, url: 'http://x'}}", "at '/nats/url': 'http://x' does not match pattern"),
    ("{nats: {enabled: false, url: 'nats://u:p@x'}}", "at '/nats/url'"),
    ("{nats: {persistence: {size: big}}}", "at '/nats/persistence/size'"),
    ("{log: {level: LOUD}}", "at '/log/level': value must be one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
    ("{drainTimeoutSeconds: 0}", "at '/drainTimeoutSeconds': minimum: got 0, want 1"),
    ("{auth: {mode: basic}}", "at '/auth/mode': value must be one of 'none', 'token'"),
    ("{auth: {mode: token, token: short}}", "at '/auth/token': 'short' does not match pattern"),
    ("{auth: {mode: token, tokens: ['a,b,c,d,e,f,g,h,i']}}", "at '/auth/tokens/0'"),
    ("{hfToken: {create: 'yes'}}", "at '/hfToken/create': got string, want boolean"),
    ("{payloadStore: {enabled: true, url: /payloads}}", "at '/payloadStore/url': '/payloads' does not match pattern"),
    ("{workers: {common: {platform: tpu}}}", "at '/workers/common/platform': value must be one of"),
    ("{workers: {common: {workerSidecar: {batcher: {wait: 1}}}}}", "additional properties 'wait' not allowed"),
    ("{workers: {common: {preloadModels: ['a,b']}}}", "at '/workers/common/preloadModels/0'"),
    ("{workers: {pools: {x: {bundles: [default]}}}}", "at '/workers/pools/x': missing property 'machineProfile'"),
    ("{workers: {pools: {x: {machineProfile: l4, bundles: []}}}}", "at '/workers/pools/x/bundles': minItems"),
    ("{workers: {pools: {x: {machineProfile: l4, maxReplicas: 0}}}}", "at '/workers/pools/x/maxReplicas'"),
    ("{workers: {pools: {x: {machineProfile: l4, minReplicas: -1}}}}", "at '/workers/pools/x/minReplicas'"),
    ("{workers: {pools: {X_Y: {machineProfile: l4}}}}", "at '/workers/pools': additional properties 'X_Y' not allowed"),
    ("{machineProfiles: {L4: {gpu: 1}}}", "at '/machineProfiles': additional properties 'L4' not allowed"),
    ("{autoscaling: {fallback: {behavior: guess}}}", "at '/autoscaling/fallback/behavior': value must be one of"),
    ("{autoscaling: {prometheus: {serverAddress: prometheus}}}", "at '/autoscaling/prometheus/serverAddress'"),
    ("{serviceMonitor: {interval: often}}", "at '/serviceMonitor/interval': 'often' does not match pattern"),
    ("{ingress: {enabled: true, host: 'https://x'}}", "at '/ingress/host': 'https://x' does not match pattern"),
    ("{networkPolicy: {metricsFrom: [{pods: {}}]}}", "additional properties 'pods' not allowed"),
    ("{fullnameOverride: Big}", "at '/fullnameOverride': 'Big' does not match pattern"),
]  # fmt: skip
SENTENCES = [
    ("{workers: {pools: {x: {machineProfile: l5}}}}", 'workers.pools.x.machineProfile: "l5" is none of machineProfiles (a100-40gb, a100-80gb, cpu, h100, l4, l4-spot); name one of them'),
    ("{workers: {pools: {l4: {minReplicas: 9}}}}", "workers.pools.l4.minReplicas: 9 is more than its maxReplicas, 8; lower it"),
    ("{gateway: {defaultMachineProfile: h100}}", 'gateway.defaultMachineProfile: no enabled pool of workers.pools has the machine profile "h100"; there are cpu'),
    ("{hfToken: {create: true}}", "hfToken.value: hfToken.create is true and there is no token; set it"),
    ("{hfToken: {value: hf_x}}", "hfToken.create: it is false and hfToken.value is set"),
    ("{hfToken: {create: true, value: hf_x, existingSecret: hub}}", 'hfToken.existingSecret: "hub" is named and hfToken.create is true; unset one'),
    ("{payloadStore: {enabled: true}}", "payloadStore.url: payloadStore.enabled is true and there is no URL; name a bucket"),
    ("{payloadStore: {url: 's3://a/b'}}", "payloadStore.enabled: it is false and payloadStore.url is set; set it to true"),
    ("{nats: {enabled: false}}", "nats.url: nats.enabled is false and there is no URL; name your broker"),
    ("{nats: {url: 'nats://x:4222'}}", 'nats.url: "nats://x:4222" is named and nats.enabled is true; set nats.enabled to false'),
    ("{nats: {enabled: false, url: 'nats://x:4222'}}", "secrets.existingSecret: the users at your broker have passwords that the chart cannot know"),
    ("{secrets: {existingSecret: s}, auth: {mode: token, token: 0123456789abcdef}}", 'auth.token: secrets.existingSecret "s" holds it; unset it here'),
    ("{auth: {tokens: [0123456789abcdef]}}", "auth.mode: it is none and auth.token or auth.tokens are set"),
    ("{ingress: {enabled: true}}", "ingress.host: ingress.enabled is true and there is no host; name it"),
    ("{gateway: {autoscaling: {minReplicas: 11}}}", "gateway.autoscaling.minReplicas: 11 is more than maxReplicas, 10; lower it"),
    ("{config: {configStore: {persistence: {enabled: true}}}}", "config.replicas: 2 pods cannot share a ReadWriteOnce volume; set it to 1"),
    ("{config: {replicas: 1, configStore: {url: 's3://a/b', persistence: {enabled: true}}}}", "config.configStore.persistence.enabled: the backup goes to s3://a/b"),
    ("{autoscaling: {enabled: true}}", "autoscaling.prometheus.serverAddress: autoscaling.enabled is true and KEDA needs a Prometheus"),
    ("{workers: {common: {clusterCache: {fill: true}}}}", "workers.common.clusterCache.url: fill is true and there is no store to fill"),
    ("{workers: {common: {cacheStorageClass: a, hfCache: {existingClaim: b}}}}", 'workers.common.cacheStorageClass: workers mount the claim "b" as their cache; unset one'),
    ("{settings: {SIE_ADMIN_TOKEN: x}}", "settings.SIE_ADMIN_TOKEN: settings are kept in clear; put it into a Secret"),
    ("{workers: {common: {settings: {AWS_SECRET_ACCESS_KEY: x}}}}", "workers.common.settings.AWS_SECRET_ACCESS_KEY: settings are kept in clear"),
    ("{gateway: {settings: {sie-timeout: 1}}}", "gateway.settings.sie-timeout: it is no name of a variable"),
    ("{settings: {SIE_NATS_REPLICAS: 3}}", "settings.SIE_NATS_REPLICAS: the chart sets it by nats.replicas; set that"),
    ("{image: {tag: latest}}", "image.tag: latest is another image tomorrow; name a version"),
    ("{nats: {image: 'nats:latest'}}", "nats.image: nats:latest is another image tomorrow; name a version"),
]  # fmt: skip


def test_there_are_enough_of_them() -> None:
    assert len(SCHEMA) + len(SENTENCES) >= 30


@pytest.mark.parametrize(("values", "said"), [*SCHEMA, *SENTENCES], ids=[each[0] for each in (*SCHEMA, *SENTENCES)])
def test_a_bad_value_stops_the_install_with_its_path(values: str, said: str, helm: Helm) -> None:
    with pytest.raises(RefusedError) as refused:
        helm.texts(yaml.safe_load(values))
    assert said in str(refused.value)


def test_every_sentence_of_the_checks_is_tried() -> None:
    checks = (CHART / "templates/shared/checks.yaml").read_text() + (CHART / "templates/workers/_sets.tpl").read_text()
    assert checks.count("fail ") == len(SENTENCES)  # one is tried at two places, and one in test_lookup.py


def test_coalescing_is_taken_from_published_values_and_has_no_effect(helm: Helm) -> None:
    values = {"workers": {"common": {"workerSidecar": {"batcher": {"coalesceMs": 5}}}}}
    assert helm.render(values, sets=["secrets.existingSecret=x"]) == helm.render(sets=["secrets.existingSecret=x"])
    assert "coalesceMs has no effect" in helm.texts(values)["sie-cluster/templates/NOTES.txt"]
