"""A network for pods: a namespace each with an address, the Services, and the NetworkPolicies enforced.

One more namespace is the node: the pods' links meet there at a bridge, and one leads from there to this machine. A
Service has an address that every pod rewrites to those of the Service's pods, as kube-proxy does. A pod refuses a
connection that no policy allows; the node, whose probes Kubernetes always lets in, may reach everything. All of it is
gone when this process is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helm.engine import Document
from tests.helm.running.pods import COMPONENT, Pod

SUBNETS = range(256)
"""Of 198.18.0.0/16, which is set aside for tests of networks."""
FIRST_SERVICE = 200
"""In a subnet; pods are below, from 2 on."""
DIAL = """
import json, socket, sys
def reached(target):
    try:
        socket.create_connection(tuple(target), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True
print(json.dumps([reached(each) for each in json.loads(sys.argv[1])]))
"""
COUNTED = re.compile(r'counter packets (\d+) .* comment "(\S+) (\S+) (\d+)"')


class RefusedError(Exception):
    """This machine does not let a process make such a network."""


def run(*command: str, text: str = "") -> str:
    """Run a command; return what it writes."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise RefusedError(f"{error}") from error
    if done.returncode:
        raise RefusedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """The pods' namespaces."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._labels: dict[str, Mapping[str, str]] = {}
        self._holders: dict[str, int] = {}
        self.addresses: dict[str, str] = {}
        self._node = self._namespace("node")
        run(*self.within("node"), "ip", "link", "add", "pods", "type", "bridge")
        run(*self.within("node"), "ip", "link", "set", "pods", "up")
        self._subnet = self._linked_to_this_machine()
        probe = _table([f"tcp dport 1 dnat to {self._subnet}.1:2"], ["ct state established counter accept"])
        run(*self.within("node"), "nft", "--check", "--file", "-", text=probe)

    def within(self, name: str) -> list[str]:
        """Return what a command begins with that runs in a pod's namespaces."""
        return ["nsenter", f"--target={self._holders[name]}", "--net", "--mount", "--"]

    def _namespace(self, name: str) -> str:
        """Make one of networks and one of mounts; return its process, which lives until its pipe is closed."""
        command = ["unshare", "--net", "--mount", "sh", "-c", "echo; exec cat"]
        pipe = subprocess.PIPE
        try:
            holder = self._held.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe))
        except OSError as error:
            raise RefusedError(f"{error}") from error
        self._held.callback(holder.kill)
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise RefusedError(f"unshare: {holder.communicate()[1].decode().strip()}")
        self._holders[name] = holder.pid
        run(*self.within(name), "ip", "link", "set", "lo", "up")
        return str(holder.pid)

    def _linked_to_this_machine(self) -> str:
        """Claim a subnet by the name of its link, which there is once on this machine."""
        for number in SUBNETS:
            link, subnet = f"sie-{number}", f"198.18.{number}"
            try:
                run("ip", "link", "add", link, "type", "veth", "peer", "name", link, "netns", self._node)
            except RefusedError as error:
                if "exists" not in str(error):
                    raise
                continue
            run(*self.within("node"), "ip", "link", "set", link, "master", "pods", "up")
            run("ip", "address", "add", f"{subnet}.1/24", "dev", link)
            run("ip", "link", "set", link, "up")
            return subnet
        raise RefusedError("every subnet is taken")

    def join(self, name: str, labels: Mapping[str, str]) -> tuple[str, list[str]]:
        """Give a pod its namespaces; return its address, and what its commands begin with."""
        own, link = self._namespace(name), f"pod-{len(self._labels)}"
        address = f"{self._subnet}.{len(self._labels) + 2}"
        self._labels[name], self.addresses[name] = labels, address
        run("ip", "link", "add", "eth0", "netns", own, "type", "veth", "peer", "name", link, "netns", self._node)
        run(*self.within("node"), "ip", "link", "set", link, "master", "pods", "up")
        run(*self.within(name), "ip", "address", "add", f"{address}/24", "dev", "eth0")
        run(*self.within(name), "ip", "link", "set", "eth0", "up")
        return address, self.within(name)

    def apply(self, found: list[Document], pods: Sequence[Pod], folder: Path) -> None:
        """Give Services their names and addresses, and let every pod refuse what none of its policies allows."""
        hosts, rewritten = ["127.0.0.1 localhost"], []
        for number, service in enumerate(each for each in found if each["kind"] == "Service"):
            name, spec = service["metadata"]["name"], service["spec"]
            behind = [pod for pod in pods if spec["selector"].items() <= pod.labels.items()]
            hosts += [f"{pod.host} {pod.name}.{name}" for pod in behind]
            if spec.get("clusterIP") == "None":
                continue
            own = self.addresses[name] = f"{self._subnet}.{FIRST_SERVICE + number}"
            hosts.append(f"{own} {name}")
            for port in spec["ports"]:
                to = [f"{place} : {pod.host} . {pod.port(port['targetPort'])}" for place, pod in enumerate(behind)]
                drawn = f"numgen random mod {len(to)} map {{ {', '.join(to)} }}"
                rewritten.append(f"ip daddr {own} tcp dport {port['port']} dnat ip addr . port to {drawn}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text("\n".join(hosts) + "\n")
        for name in self._labels:
            run(*self.within(name), "mount", "--bind", f"{folder / 'hosts'}", "/etc/hosts")
            run(*self.within(name), "nft", "--file", "-", text=_table(rewritten, self._allowed(name, found)))

    def _allowed(self, name: str, found: list[Document]) -> list[str]:
        """Write the rules of a pod's NetworkPolicies; each counts the connections that it lets in."""
        policies = [
            each["spec"]
            for each in found
            if each["kind"] == "NetworkPolicy" and self._is(name, each["spec"]["podSelector"])
        ]
        if not policies:
            return ["accept"]
        rules = []
        for rule in (rule for policy in policies for rule in policy["ingress"]):
            peers = rule.get("from") or [{"namespaceSelector": {}}]
            for peer in peers:
                # There is one namespace: a selector of namespaces that has no selector of pods lets in all of it.
                let_in = [each for each in self._labels if self._is(each, peer.get("podSelector", {}))]
                for port in (port["port"] for port in rule["ports"]):
                    rules += [
                        f"ip saddr {self.addresses[each]} tcp dport {port} counter accept comment "
                        f'"{self._labels[each].get(COMPONENT, each)} {self._labels[name][COMPONENT]} {port}"'
                        for each in let_in
                    ]
        own = ("iif lo accept", "ct state established,related accept", f"ip saddr {self._subnet}.1 accept")
        return [*own, *rules, "meta l4proto tcp reject with tcp reset"]

    def used(self) -> set[tuple[str, str, int]]:
        """Return the connections since the policies apply: the caller's component, the called one and its port."""
        found = set()
        for name in self._labels:
            listed = run(*self.within(name), "nft", "list", "ruleset")
            found |= {(of, to, int(port)) for count, of, to, port in COUNTED.findall(listed) if int(count)}
        return found

    def reached(self, name: str, targets: Sequence[tuple[str, int]]) -> list[bool]:
        """Say which addresses and ports a pod can connect to, and which refuse it.

        Raises:
            RefusedError: One does neither.
        """
        told = run(*self.within(name), sys.executable, "-c", DIAL, json.dumps(targets))
        found: list[bool] = json.loads(told)
        return found

    def _is(self, name: str, selector: Document) -> bool:
        """Whether a selector of pods selects one."""
        return bool(selector.get("matchLabels", {}).items() <= self._labels[name].items())


def _table(rewritten: Sequence[str], allowed: Sequence[str]) -> str:
    lines = [
        "table ip pod {",
        "chain services { type nat hook output priority -100;", *rewritten, "}",
        "chain incoming { type filter hook input priority 0;", *allowed, "}",
        "}",
    ]  # fmt: skip
    return "\n".join(lines)


@contextmanager
def network() -> Iterator[Network]:
    """Make a network.

    Raises:
        RefusedError: This machine does not let it.
    """
    with ExitStack() as held:
        yield Network(held)
