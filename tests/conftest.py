"""Settings of all tests."""

import signal

from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("stallpoint", deadline=None)
settings.load_profile("stallpoint")

# What a shell starts in the background ignores Ctrl-C, and so does all that it starts; tests may run there.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
