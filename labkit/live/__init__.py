"""The gateway on the real clock, with one process a GPU."""

from labkit.live.configure import live_settings as live_settings
from labkit.live.driver import Live as Live
from labkit.live.driver import current as current
from labkit.live.errors import Cancelled as Cancelled
from labkit.live.errors import Expired as Expired
from labkit.live.errors import Failed as Failed
from labkit.live.errors import LiveError as LiveError
from labkit.live.errors import NoAnswer as NoAnswer
from labkit.live.errors import Rejected as Rejected
from labkit.live.fleet import FakeFleet as FakeFleet
from labkit.live.openloop import Fault as Fault
from labkit.live.openloop import Run as Run
from labkit.live.replies import Reply as Reply
