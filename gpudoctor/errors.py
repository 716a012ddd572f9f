"""The one error family: each error is a line for the user and an exit code."""


class GpudoctorError(Exception):
    """Something the user can act on; `str(error)` says what is wrong and what to do."""

    exit_code = 2


class UsageError(GpudoctorError):
    """The command's words are off."""


class InputError(GpudoctorError):
    """A file is missing, unreadable, truncated or not what its name says."""


class RuleError(GpudoctorError):
    """A rule or its cases are malformed."""


class MissingExtraError(GpudoctorError):
    """An optional dependency is absent; the message names the extra that brings it."""


class InconclusiveError(GpudoctorError):
    """The evidence that was asked for is missing, or two subjects cannot be compared."""

    exit_code = 3
