"""Converts pickled weights that a model's config pins to safetensors, once, in the folder where they lie.

Unpickling may run code and allocate any amount of memory, and PyTorch's restriction to tensors has failed before. So a
file is unpickled only if it has the pinned hash and is a plain archive of tensors, which is checked without unpickling.
"""

from __future__ import annotations

import hashlib
import io
import pickletools
import zipfile
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from sie_core.contracts import LoadContext, ModelLoadError, PinnedFile
from sie_pytorch.forward.checkpoint.writing import write_safetensors

PICKLED = "pytorch_model.bin"
CONVERTED = "model.safetensors"
MADE_FROM = "sie.sha256"
"""The metadata of a converted copy that holds the SHA-256 of the pickle it was made from."""
MOST_PICKLE = 2**21
"""Bytes of the pickle in the archive; it names about 10 tensors per 2 kB, and a large model has a thousand."""
MOST_DIRECTORY = 2**21
"""Bytes of the archive's list of its parts."""
TENSORS = frozenset(
    {
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        *(f"torch {name}Storage" for name in ("Double", "Float", "Half", "BFloat16")),
        *(f"torch {name}Storage" for name in ("Long", "Int", "Short", "Char", "Byte", "Bool")),
    }
)
"""Names that the pickle of a plain map of tensors imports."""

OTHER_IMPORTS = frozenset({"STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"})
"""Instructions that import by a name which is not their argument; torch.save writes none."""


def with_safetensors(context: LoadContext) -> LoadContext:
    """Return a load's context with weights in safetensors, converted from `pytorch_model.bin` if nothing else is there.

    A context whose config does not pin that file, or whose weights are in safetensors, is returned unchanged. A copy
    that was converted from another file than the pinned one is converted anew.

    Raises:
        ModelLoadError: `CORRUPT`: the file is not the pinned one, or holds anything but tensors. `STORAGE`: the
            converted copy cannot be written.
    """
    card, pinned = context.card, context.model.config.pickles.get(PICKLED)
    if card is None or pinned is None or PICKLED not in card.files:
        return context
    there = [name for name in card.files if "/" not in name and name.endswith(".safetensors")]
    if there and (there != [CONVERTED] or _made_from(card.path / CONVERTED) in (None, pinned.sha256)):
        return context
    convert(card.path / PICKLED, pinned, card.path / CONVERTED)
    return replace(context, card=replace(card, files=tuple(sorted({*card.files, CONVERTED}))))


def convert(file: Path, pinned: PinnedFile, into: Path) -> None:
    """Write the tensors of a pinned pickle to safetensors; `into` is there as a whole, or not at all.

    The tensors are mapped from the file and copied one by one.

    Raises:
        ModelLoadError: As `with_safetensors`.
    """
    try:
        with file.open("rb") as stream:
            _check_hash(file.name, stream, pinned)
            size = stream.tell()
            _check_archive(file.name, stream, size)
    except OSError as error:
        raise _corrupt(file.name, f"cannot be read ({error.strerror})") from error
    tensors = _tensors(file)
    held = {(each.data_ptr(), each.shape, each.stride()): each for each in tensors.values()}
    if sum(each.numel() * each.element_size() for each in held.values()) > size:
        raise _corrupt(file.name, "names tensors that are larger than the file")
    write_safetensors(tensors, into, {MADE_FROM: pinned.sha256})


def _made_from(file: Path) -> str | None:
    """Read the hash of the pickle that a copy was converted from; None if it is none, or cannot be read."""
    try:
        with safe_open(file, framework="pt") as tensors:
            made: str | None = (tensors.metadata() or {}).get(MADE_FROM)
            return made
    except (SafetensorError, OSError):
        return None


def _check_hash(name: str, stream: BufferedReader, pinned: PinnedFile) -> None:
    """Hash a file by parts; afterwards the stream is at its end."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if pinned.size not in (None, size):
        problem = f"has {size} bytes, and not {pinned.size}"
    elif (found := hashlib.file_digest(stream, "sha256").hexdigest()) != pinned.sha256:
        problem = f"has the SHA-256 {found}, and not {pinned.sha256}"
    else:
        return
    raise ModelLoadError(
        "CORRUPT",
        f"{name} is not the file that the model's config pins (`pickles`): it {problem}. Fetch it again, or pin this "
        "one where you trust it.",
    )


class _Directory(BufferedReader):
    """Reads an archive's list of parts, and no long one: `zipfile` takes it into memory as a whole."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0 or size > MOST_DIRECTORY:
            size = MOST_DIRECTORY + 1
        if len(found := super().read(size)) > MOST_DIRECTORY:
            raise zipfile.BadZipFile("the list of its parts is too long")
        return found


def _check_archive(name: str, stream: BufferedReader, size: int) -> None:
    """Check that a file is an archive as `torch.save` writes it, and that its pickle makes tensors and nothing else.

    Raises:
        ModelLoadError: `CORRUPT`, with the reason.
    """
    try:
        with zipfile.ZipFile(_Directory(io.FileIO(stream.fileno(), closefd=False))) as archive:
            parts = archive.infolist()
            if packed := next((each for each in parts if each.compress_type != zipfile.ZIP_STORED), None):
                raise _corrupt(name, f"holds {packed.filename} compressed, which torch.save never does")
            if (whole := sum(each.file_size for each in parts)) > size:
                raise _corrupt(name, f"has {size} bytes, and its parts claim {whole}")
            pickles = [each for each in parts if each.filename.endswith("/data.pkl")]
            if len(pickles) != 1 or pickles[0].file_size > MOST_PICKLE:
                raise _corrupt(name, "is no pickle of tensors, or is larger than allowed")
            content = archive.read(pickles[0])
        imported = {_imported(code.name, argument) for code, argument, _ in pickletools.genops(content)}
    except ModelLoadError:
        raise
    except Exception as error:  # both parsers fail in many ways
        raise _corrupt(name, f"is no whole archive of torch.save ({error})") from error
    if unknown := sorted(each.replace(" ", ".") for each in imported - TENSORS if each):
        raise _corrupt(name, f"asks for {', '.join(unknown[:4])}, where weights hold tensors alone; nothing of it ran")


def _imported(code: str, argument: object) -> str:
    """Name what an instruction of a pickle imports; one that finds the name otherwise stands for it."""
    return str(argument) if code == "GLOBAL" else code if code in OTHER_IMPORTS else ""


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    """Map the tensors of a checked file.

    Raises:
        ModelLoadError: `CORRUPT`: it holds something else.
    """
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # an unpickler fails in any way
        raise _corrupt(file.name, f"cannot be read as tensors ({type(error).__name__})") from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(each, torch.Tensor) for name, each in found.items()
    ):
        raise _corrupt(file.name, "holds no map of names to tensors")
    return {name: each.detach() for name, each in found.items()}


def _corrupt(name: str, problem: str) -> ModelLoadError:
    return ModelLoadError("CORRUPT", f"{name} {problem}. Take another file, or a repository that has safetensors.")
