"""Whether what `SIE_ATTENTION_BACKEND` asks for is installed. It must not know what the backends do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sie_core.contracts import Device, PluginError, RunnerSpec

INSTALL: Mapping[str, str] = {
    "flash_attention_2": "pip install sie-flash && pip install flash-attn --no-build-isolation",
}
"""The backends that need a runner which names them, and what installs it."""


def require_attention_backend(wanted: str, runners: Sequence[RunnerSpec], device: Device) -> None:
    """Check that a backend which needs a runner of its own has one on `device`.

    Raises:
        PluginError: It has none; the message says how to get it.
    """
    if wanted not in INSTALL:
        return
    named = [spec for spec in runners if wanted in spec.attention_backends]
    if any(not spec.devices or device.kind in spec.devices for spec in named):
        return
    if not named:
        raise PluginError(
            f"SIE_ATTENTION_BACKEND={wanted} is not installed. Run `{INSTALL[wanted]}`, or set it to `auto`."
        )
    served = ", ".join(sorted({kind for spec in named for kind in spec.devices}))
    raise PluginError(
        f"SIE_ATTENTION_BACKEND={wanted} needs a device {served}, and this is {device}. Set it to `auto`."
    )
