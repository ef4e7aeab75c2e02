"""What has to be written so that a config service holds a folder: the service itself says what each write would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from sie_cluster.cli.config.folder import Folder, Problem, Written
from sie_cluster.cli.services import Refused, Service
from sie_cluster.config_service.writing.merging import same

MODELS = "/v1/configs/models"
Action = Literal["create", "change", "replace", "remove", "keep", "refuse", "same"]


@dataclass(frozen=True, slots=True)
class Change:
    """What is done with a model: `keep` leaves one as it is that the folder does not have."""

    id: str
    action: Action
    file: str | None = None
    note: str = ""
    epoch: int = 0
    """Of the service after it."""

    @property
    def writes(self) -> bool:
        """Whether the service is changed."""
        return self.action in ("create", "change", "replace", "remove")


@dataclass(slots=True)
class Comparison:
    """A folder beside what a service was told, and beside what its image holds.

    Args:
        service: The config service.
        folder: It.
        replace: Whether a model that is served with other content is replaced instead of refused.
        prune: Whether models that the service was told and the folder does not have are removed.
    """

    service: Service
    folder: Folder
    replace: bool
    prune: bool
    problems: list[Problem]

    def changes(self) -> Iterator[Change]:
        """Say of each model what would be done; problems are added to `problems`.

        Raises:
            Away: The service gives no answer.
        """
        exported = self.service.ask("GET", "/v1/configs/export")["models"]
        served: dict[str, Any] = {each["model_id"]: each for each in exported}
        for model_id, written in sorted(self.folder.models.items()):
            known = served.get(model_id)
            if known is not None and same(known["model_config"], written.content):
                yield Change(model_id, "same", written.file, epoch=known["epoch"])
            else:
                yield self.write(written, known is not None, dry_run=True)
                if known is not None and not self.replace:
                    yield from _kept_profiles(written, known["model_config"])
        for model_id, known in sorted(served.items()):
            if known["source"] != "api" or model_id in self.folder.models:
                continue
            if self.prune:
                yield self.remove(model_id, dry_run=True)
            else:
                yield Change(model_id, "keep", note="it is not in the folder; --prune removes it")

    def write(self, written: Written, known: bool, *, dry_run: bool = False) -> Change:
        """Write a model; a refusal is added to `problems`.

        Raises:
            Away: The service gives no answer.
        """
        replaces = known and self.replace
        method, path = ("PUT", f"{MODELS}/{quote(written.id, safe='')}") if replaces else ("POST", MODELS)
        try:
            told = self.service.ask(method, path, written.text, query=_query(dry_run))
        except Refused as refused:
            self.problems += _problems(written, refused)
            return Change(written.id, "refuse", written.file, refused.name)
        action: Action = "replace" if replaces else "change" if known else "create"
        changed = told["replaced"] if replaces else told["created_profiles"]
        note = "" if replaces else ", ".join(told["created_profiles"])
        return Change(written.id, action if changed else "same", written.file, note, told["epoch"])

    def remove(self, model_id: str, *, dry_run: bool = False) -> Change:
        """Remove a model.

        Raises:
            Away: The service gives no answer.
        """
        told = self.service.ask("DELETE", f"{MODELS}/{quote(model_id, safe='')}", query=_query(dry_run))
        note = "the config of the service's image is served again" if told["fallback"] else ""
        return Change(model_id, "remove", None, note, told["epoch"])


def _query(dry_run: bool) -> str:
    return "dry_run=true" if dry_run else ""


def _kept_profiles(written: Written, served: Mapping[str, Any]) -> Iterator[Change]:
    kept = [name for name in served.get("profiles") or {} if name not in (written.content.get("profiles") or {})]
    if kept:
        note = f"the file does not have its profiles {', '.join(kept)}; --replace removes them"
        yield Change(written.id, "keep", written.file, note)


def _problems(written: Written, refused: Refused) -> list[Problem]:
    """Name the lines of a refusal."""
    error = refused.error
    message = str(error.get("message"))
    wrong: dict[str, list[str]] = {}
    for each in error.get("details") or ():
        wrong.setdefault(each.get("loc") or "", []).append(each["message"])
    if len(wrong) > 1:
        return [written.problem(loc, "; ".join(told)) for loc, told in wrong.items()]
    profiles, fields = error.get("conflicting_profiles") or [], error.get("conflicting_fields") or []
    locs = [*(f"profiles.{name}" for name in profiles), *fields, error.get("param") or ""]
    if refused.name == "content_conflict":
        message += " `--replace` does so."
    return [written.problem(locs[0], message)]
