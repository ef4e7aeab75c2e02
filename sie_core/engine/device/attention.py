"""Whether what `SIE_ATTENTION_BACKEND` asks for is installed."""

from __future__ import annotations

from collections.abc import Sequence

from sie_core.contracts import Device, PluginError, RunnerSpec

OF_EVERY_FAMILY = frozenset({"auto", "sdpa", "eager"})
"""The backends that need no runner which names them."""


def require_attention_backend(wanted: str, runners: Sequence[RunnerSpec], device: Device) -> None:
    """Check that a backend which needs a runner of its own has one on `device`.

    Raises:
        PluginError: It has none; the message lists the backends there are.
    """
    if wanted in OF_EVERY_FAMILY:
        return
    named = [spec for spec in runners if wanted in spec.attention_backends]
    if any(not spec.devices or device.kind in spec.devices for spec in named):
        return
    if not named:
        there = OF_EVERY_FAMILY.union(*(spec.attention_backends for spec in runners))
        raise PluginError(
            f"SIE_ATTENTION_BACKEND={wanted} is not installed; there are {', '.join(sorted(there))}. Install a plugin "
            "with a runner that names it (docs/runners.md lists some), or set it to `auto`."
        )
    served = ", ".join(sorted({kind for spec in named for kind in spec.devices}))
    raise PluginError(
        f"SIE_ATTENTION_BACKEND={wanted} needs a device {served}, and this is {device}. Set it to `auto`."
    )
