"""The one exception that means the user, not the program, has to change something."""


class UserError(ValueError):
    """A flag, config, path, data directory, checkpoint or model that cannot be used.

    The message is one line: what is wrong, the value, what is allowed. Commands print it and exit with 2; every other
    exception is a fault of ours and keeps its traceback.
    """
