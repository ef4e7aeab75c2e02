import subprocess
import sys

PROGRAM = """
import sys
import sie_pytorch.forward.checkpoint.reading
from transformers import BertModel
from transformers.utils import is_scipy_available
from importlib.util import find_spec
assert "scipy" not in sys.modules
assert is_scipy_available() == (find_spec("scipy") is not None)
"""


def test_models_are_imported_without_scipy_and_nothing_else_misses_it() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=250)
