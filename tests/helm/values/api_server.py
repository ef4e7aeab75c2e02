"""A Kubernetes API that knows kinds, Secrets and brokers alone: enough for Helm to look before it installs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GROUPS: Mapping[str, Mapping[str, str]] = {
    "v1": {
        "configmaps": "ConfigMap",
        "secrets": "Secret",
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    },
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy", "ingresses": "Ingress"},
}

OF_HELM = {"app.kubernetes.io/managed-by": "Helm"}
OF_RELEASE = {"meta.helm.sh/release-name": "sie", "meta.helm.sh/release-namespace": "search"}
"""What Helm writes on what it makes, and takes over by."""


def answer(path: str, secrets: Mapping[str, Mapping[str, str]], brokers: int) -> tuple[int, dict[str, Any]]:
    """Answer a GET; `secrets` are the data of those that exist, by name, `brokers` the number that run."""
    at = path.partition("?")[0].strip("/")
    if at == "version":
        return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
    if at == "api":
        return 200, {"kind": "APIVersions", "versions": ["v1"]}
    if at == "apis":
        groups = [{"groupVersion": each, "version": "v1"} for each in GROUPS if "/" in each]
        listed = [{"name": of["groupVersion"][:-3], "versions": [of], "preferredVersion": of} for of in groups]
        return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    for version, kinds in GROUPS.items():
        if at == (f"apis/{version}" if "/" in version else "api/v1"):
            verbs = ["get", "list", "create", "update", "patch", "delete"]
            resources = [
                {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
                for name, kind in kinds.items()
            ]
            return 200, {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    kind, _, name = at.rpartition("/")
    if kind.endswith("/secrets") and name in secrets:
        metadata = {"name": name, "namespace": "search", "labels": OF_HELM, "annotations": OF_RELEASE}
        return 200, {"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": dict(secrets[name])}
    if kind.endswith("/statefulsets") and name == "sie-nats" and brokers:
        metadata = {"name": name, "namespace": "search", "labels": OF_HELM, "annotations": OF_RELEASE}
        return 200, {
            "kind": "StatefulSet",
            "apiVersion": "apps/v1",
            "metadata": metadata,
            "spec": {"replicas": brokers},
        }
    return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


@contextmanager
def api_server(secrets: Mapping[str, Mapping[str, str]], brokers: int = 0) -> Iterator[str]:
    """Serve it; yield a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = answer(self.path, secrets, brokers)
            text = json.dumps(body).encode()
            if self.path.startswith("/openapi/v2"):  # no schema at all, in the binary form that is asked for
                code, text = 200, b""
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
        yield json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [context],
            }
        )
        server.shutdown()
