"""What stops a command on a bundle."""


class BundlingError(Exception):
    """A command on a bundle cannot go on; the message names what, the offending value and the remedy."""


class ToolMissing(BundlingError):
    """A program that a command runs is not installed."""


class Unsolvable(BundlingError):
    """No set of versions fulfils what a bundle asks for; the message says who wants what, in at most five lines."""
