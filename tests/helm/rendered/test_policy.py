"""What every rendered manifest keeps to: nobody is root, nothing is without a limit, no secret stands in clear."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest
from sie_cluster.settings import ClusterSettings

from sie_core.contracts import PluginSetting
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings, variables_of
from tests.helm.engine import Document, Helm, containers, one, pods
from tests.helm.matrix import merged

pytestmark = pytest.mark.timeout(300)
Rendered = dict[str, list[Document]]
UID = 10001
PAUSE_S, SPARE_S = 5, 5


def test_nobody_is_root_and_nothing_is_privileged(rendered: Rendered) -> None:
    for found in rendered.values():
        for where, pod in pods(found):
            context = pod["securityContext"]
            assert context["runAsNonRoot"] is True, where
            assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (UID, UID, UID)
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert pod["automountServiceAccountToken"] is False
            assert pod["enableServiceLinks"] is False
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
            assert not any("hostPath" in volume for volume in pod.get("volumes", ()))
        for where, container in containers(found):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, where


def test_every_container_has_requests_and_limits(rendered: Rendered) -> None:
    for found in rendered.values():
        for where, container in containers(found):
            for kind in ("requests", "limits"):
                assert {"cpu", "memory"} <= set(container["resources"][kind]), where


def test_every_folder_that_a_program_writes_to_is_a_volume(rendered: Rendered) -> None:
    for found in rendered.values():
        for where, container in containers(found):
            mounts = {mount["mountPath"] for mount in container.get("volumeMounts", ())}
            if "DaemonSet" not in where:
                assert mounts >= ({"/data", "/run/nats"} if where.endswith("/nats") else {"/tmp"}), where


def test_every_image_has_a_version(rendered: Rendered) -> None:
    for found in rendered.values():
        for where, container in containers(found):
            tag = container["image"].rpartition("/")[2].partition(":")[2]
            assert tag not in ("", "latest"), where


def test_no_secret_stands_in_a_config_map_or_in_arguments(helm: Helm) -> None:
    secret = "0123456789-a-secret"
    found = helm.render(
        {
            "auth": {"mode": "token", "token": secret, "tokens": [secret * 2]},
            "hfToken": {"create": True, "value": secret},
        }
    )
    secrets = [each for each in found if each["kind"] == "Secret"]
    plain = {b64decode(value).decode() for each in secrets for value in each["data"].values()}
    assert secret in plain
    others = str([each for each in found if each["kind"] != "Secret"])
    for each in plain:
        assert each not in others


def test_secrets_come_as_files_of_those_who_need_them(helm: Helm) -> None:
    found = helm.render({"auth": {"mode": "token"}})
    held: dict[str, set[str]] = {}
    for where, pod in pods(found):
        items = {
            each["name"]: {item["key"] for item in each["secret"]["items"]}
            for each in pod["volumes"]
            if "secret" in each
        }
        for container in pod["containers"]:
            mounted = [mount["name"] for mount in container["volumeMounts"] if mount["name"] in items]
            held[f"{where}/{container['name']}"] = set().union(*(items[name] for name in mounted))
    assert held == {
        "Deployment/sie-gateway/gateway": {"nats-gateway-password", "config-read-token", "auth-token", "pool-token"},
        "Deployment/sie-config/config": {"nats-config-password", "config-read-token", "admin-token"},
        "StatefulSet/sie-nats/nats": set(),
        "StatefulSet/sie-worker-cpu-default/worker": {"auth-token"},
        "StatefulSet/sie-worker-cpu-default/worker-sidecar": {
            "nats-worker-password",
            "config-read-token",
            "auth-token",
        },
    }


def test_generated_secrets_are_long_and_of_each_its_own(helm: Helm) -> None:
    data = one(helm.render({"auth": {"mode": "token"}}), "Secret", "sie-secrets")["data"]
    plain = [b64decode(value).decode() for value in data.values()]
    assert len(set(plain)) == len(plain) == 8
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9]{39}", each) for each in plain)


def test_every_variable_is_a_setting_that_exists(rendered: Rendered) -> None:
    of_plugins = {each.variable for each in discover(Settings(), BUILTINS).settings if isinstance(each, PluginSetting)}
    known = variables_of(ClusterSettings) | of_plugins
    named = set()
    for found in rendered.values():
        for each in found:
            if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith("-settings"):
                named |= set(each["data"])
        for _, container in containers(found):
            named |= {each["name"] for each in container.get("env", ())}
    ours = {name for name in named if name.startswith("SIE_")}
    assert len(ours) > 20
    assert ours <= known


def test_pods_are_given_longer_than_their_drain(helm: Helm) -> None:
    for drain_s in (25, 90):
        found = helm.render({"drainTimeoutSeconds": drain_s})
        for where, pod in pods(found):
            if "nats" not in where:
                assert pod["terminationGracePeriodSeconds"] >= PAUSE_S + drain_s + SPARE_S, where
        assert one(found, "ConfigMap", "sie-settings")["data"]["SIE_DRAIN_TIMEOUT_S"] == str(drain_s)


def test_a_worker_and_its_sidecar_share_socket_user_and_queue(helm: Helm) -> None:
    (pod,) = [pod for where, pod in pods(helm.render()) if "worker" in where]
    worker, sidecar = pod["containers"]
    assert (worker["name"], sidecar["name"]) == ("worker", "worker-sidecar")
    for name in ("SIE_IPC_SOCKET_PATH", "SIE_POOL", "SIE_BUNDLE", "SIE_MACHINE_PROFILE"):
        assert variable(worker, name) == variable(sidecar, name)
    folder = variable(worker, "SIE_IPC_SOCKET_PATH").rpartition("/")[0]
    for container in (worker, sidecar):
        assert {"name": "socket", "mountPath": folder} in container["volumeMounts"]
        assert "runAsUser" not in container["securityContext"]


def variable(container: Document, name: str) -> str:
    (value,) = (each["value"] for each in container["env"] if each["name"] == name)
    assert isinstance(value, str)
    return value


def let_in(found: list[Document]) -> dict[str, list[str]]:
    """Say who may call whom by the policies: components by component and port."""
    allowed: dict[str, list[str]] = {}
    for each in found:
        if each["kind"] == "NetworkPolicy":
            of = each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in each["spec"]["ingress"]:
                for port in rule["ports"]:
                    who = [
                        peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component", "any pod")
                        for peer in rule.get("from", [])
                    ]
                    allowed.setdefault(f"{of}:{port['port']}", []).extend(who or ["anybody"])
    return allowed


def test_network_policies_let_in_whom_each_needs(helm: Helm) -> None:
    assert let_in(helm.render({"nats": {"replicas": 3}})) == {
        "gateway:8080": ["anybody"],
        "config:8080": ["gateway", "worker", "any pod"],
        "worker:8080": ["any pod"],
        "worker:9095": ["any pod"],
        "nats:4222": ["gateway", "worker", "config"],
        "nats:6222": ["nats"],
    }


def test_a_worker_is_called_by_nobody_but_those_who_are_named_and_gateways_that_dial(helm: Helm) -> None:
    nobody = {"networkPolicy": {"metricsFrom": []}}
    assert "worker:8080" not in let_in(helm.render(nobody))
    dialling = {"settings": {"SIE_GATEWAY_HEALTH_MODE": "ws"}}
    for values in (dialling, {"gateway": dialling}):
        assert let_in(helm.render(merged(nobody, values)))["worker:8080"] == ["gateway"]


def test_selectors_of_services_and_policies_find_their_pods(rendered: Rendered) -> None:
    for found in rendered.values():
        labels = [
            each["spec"]["template"]["metadata"]["labels"] for each in found if "template" in each.get("spec", {})
        ]
        enabled = any(
            "component: worker" in str(each) or each["app.kubernetes.io/component"] == "worker" for each in labels
        )
        for each in found:
            selector = each.get("spec", {}).get("selector")
            if each["kind"] in ("Service", "PodDisruptionBudget", "ServiceMonitor"):
                wanted = selector.get("matchLabels", selector)
                if wanted["app.kubernetes.io/component"] == "worker" and not enabled:
                    continue
                ours = (
                    labels
                    if each["kind"] != "ServiceMonitor"
                    else [other["metadata"]["labels"] for other in found if other["kind"] == "Service"]
                )
                assert any(wanted.items() <= of.items() for of in ours), (each["kind"], each["metadata"]["name"])


def test_a_gpu_is_asked_for_where_its_profile_has_one(helm: Helm) -> None:
    found = helm.render(
        merged({"workers": {"pools": {"l4": {"enabled": True}, "two": {"machineProfile": "h100", "gpu": 2}}}})
    )
    of = {
        name: one(found, "StatefulSet", f"sie-worker-{name}-default")["spec"]["template"]["spec"]
        for name in ("cpu", "l4", "two")
    }
    limits = {name: pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu") for name, pod in of.items()}
    assert limits == {"cpu": None, "l4": 1, "two": 2}
    assert [pod["containers"][0]["image"] for pod in of.values()] == [
        "sie-server:1.0.0-cpu-default", "sie-server:1.0.0-cuda-default", "sie-server:1.0.0-cuda-default",
    ]  # fmt: skip
    gateway = one(found, "Deployment", "sie-gateway")["spec"]["template"]["spec"]["containers"][0]
    assert variable(gateway, "SIE_GATEWAY_CONFIGURED_GPUS") == "cpu,l4,h100"
