"""Waiting for a condition instead of sleeping."""
import time


def wait_for(condition, deadline_s=60, what=None, every_s=0.02):
    """Waits for a true value of `condition()` and returns it. Fails the test after `deadline_s`."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what or getattr(condition, '__doc__', None) or condition}")
        time.sleep(every_s)
