"""What happens to an output before it leaves: shortening, dtype, encoding. It knows no queue and no device."""

from sie_core.postprocess.dtypes import OUTPUT_DTYPES
from sie_core.postprocess.encoding import encode_item
from sie_core.postprocess.finite import require_finite
from sie_core.postprocess.matryoshka import shorten

__all__ = ["OUTPUT_DTYPES", "encode_item", "require_finite", "shorten"]
