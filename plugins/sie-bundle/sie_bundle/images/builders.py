"""Programs that build images from a context: docker, podman and buildah, whichever is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sie_bundle.errors import BundlingError, ToolMissing

BUILDERS = ("docker", "podman", "buildah")
LONGEST_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Builder:
    """A builder by its program."""

    program: str

    @property
    def name(self) -> str:
        """Its name, whatever folder it lies in."""
        return Path(self.program).name

    def build(self, context: Path, tag: str, epoch: int, arguments: Sequence[str] = ()) -> None:
        """Build the image of a context; what the builder says goes to this process's standard error.

        Raises:
            BundlingError: The builder failed.
        """
        command = [*self._command(context, tag, epoch), *arguments, str(context)]
        variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=2, env=variables)
        if done.returncode:
            raise BundlingError(
                f"{self.name} ended with {done.returncode} and said why above; the command was: {' '.join(command)}"
            )

    def _command(self, context: Path, tag: str, epoch: int) -> list[str]:
        """Begin the command line that builds; options of the user and the context follow."""
        command = [self.program, "build", "--file", str(context / "Containerfile"), "--tag", tag]
        if self.name == "docker":
            return command
        # Their other format has room for the health check, and for names drawn at random: no two builds were equal.
        return [*command, "--format", "oci", "--layers", "--timestamp", str(epoch)]

    def copy_out(self, tag: str, source: str, target: Path) -> None:
        """Copy a file of an image to this machine.

        Raises:
            BundlingError: It cannot be copied.
        """
        if self.name == "buildah":
            container = self._ask("from", "--pull-never", tag)
            try:
                shutil.copyfile(Path(self._ask("mount", container) + source), target)
            finally:
                self._ask("rm", container)
            return
        container = self._ask("create", tag)
        try:
            self._ask("cp", f"{container}:{source}", str(target))
        finally:
            self._ask("rm", container)

    def _ask(self, *arguments: str) -> str:
        done = subprocess.run([self.program, *arguments], check=False, capture_output=True, text=True)
        if done.returncode:
            raise BundlingError(f"{self.name} {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout.strip()


def find_builder(name: str | None = None) -> Builder:
    """Return the builder of that name, or the first that is installed: docker counts where its daemon answers.

    Raises:
        ToolMissing: It is not, or none is.
    """
    for each in [name] if name else BUILDERS:
        if (program := shutil.which(each)) and (name or each != "docker" or _answers(program)):
            return Builder(program)
    raise ToolMissing(
        f"{name or 'none of ' + ', '.join(BUILDERS)} is on PATH: install one, or write the context alone with --context"
    )


def _answers(docker: str) -> bool:
    """Whether the daemon of docker answers: its program alone builds nothing, and podman may be there."""
    try:
        asked = subprocess.run([docker, "version"], check=False, capture_output=True, timeout=LONGEST_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
