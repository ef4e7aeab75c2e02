"""A plugin whose import fails."""

import there_is_no_such_library  # noqa: F401

INTERFACES = ()
