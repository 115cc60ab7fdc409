"""Which came first, a rank's own trouble or the time-outs of those that waited for it?

A watchdog prints after minutes what a rank's death began, and the lines of two ranks stand in a file in no sure order. So a cause
is measured against the waits of its own rank, and against those of others only where both have a stamp.
"""

from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.train_log.causes import is_crash, place
from detectors.inspect.train_log.plan import HARD, is_before
from detectors.inspect.train_log.story import Episode, Story, Told

#: A cause may be printed so much later than the complaints about it.
LATE_SECONDS: Final = 120.0
#: .. if it is one that the end of a job can make too (an exception, a loader): clocks differ by so much.
SLACK_SECONDS: Final = 2.0
#: Lines that name the ranks that are waited for.
_NAMED: Final = ("desync_missing", "desync_never", "barrier_missing")


def is_root(one: Told, waits: list[Told], episode: Episode, story: Story, context: Context) -> bool:
    """Whether a cause is what the time-outs follow from.

    Args:
        one: a record that names a cause by itself.
        waits: the time-outs of collectives, in order.
    """
    if not waits or is_before(one, waits[0]):
        return True
    rank = place(one, episode, story, context).get("rank")
    if rank is None:
        return False
    own = [wait for wait in waits if wait.record.rank == rank]
    if own:
        return is_before(one, own[0])  # a rank that waited itself: what it met after that follows from the end of the wait
    missing = {named for told in episode.of(*_NAMED) for named in told.data["ranks"]}
    if missing and rank not in missing:
        return False
    if one.own is None or waits[0].own is None:
        return True
    unprovoked = one.what in HARD or one.what == "segfault" or is_crash(one)
    return one.own - waits[0].own <= (LATE_SECONDS if unprovoked else SLACK_SECONDS)
