"""Executes orders about redis-py's lock from standard input.

A line is the name of a thread, an order, the name of a lock and milliseconds. The
first order for a thread creates it. A thread executes its orders one after the
other, and answers each with one line that begins with its name. The end of the
input, or the order quit, ends the process.

    A lock NAME LEASE        waits; answers: held WHEN
    A try NAME WAIT LEASE    answers: held WHEN, or: refused
    A extend NAME LEASE      restarts the lease; answers: extended
    A unlock NAME            answers: unlocked BEGAN

A lease of 0 has no end. WHEN and BEGAN are microseconds since 1970. The answer to
an order that fails is: error MESSAGE.
"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis


class Thread:
    """A thread and the locks that it holds."""

    def __init__(self, client, name):
        self.client = client
        self.name = name
        self.locks = {}
        self.pool = ThreadPoolExecutor(max_workers=1)

    def execute(self, order, name, *millis):
        self.pool.submit(self._execute, order, name, *(int(m) / 1000 for m in millis))

    def _execute(self, order, name, *seconds):
        try:
            answer(self.name, getattr(self, order)(name, *seconds))
        except Exception as problem:  # reported to the test
            answer(self.name, f"error {problem!r}")

    def lock(self, name, lease):
        return self._acquire(name, lease, blocking=True)

    def try_(self, name, wait, lease):
        return self._acquire(name, lease, blocking=wait > 0, blocking_timeout=wait or None)

    def _acquire(self, name, lease, **blocking):
        lock = self.client.lock(name, timeout=lease or None)
        if not lock.acquire(**blocking):
            return "refused"
        held = now()
        self.locks[name] = lock
        return f"held {held}"

    def extend(self, name, lease):
        self.locks[name].extend(lease, replace_ttl=True)
        return "extended"

    def unlock(self, name):
        began = now()
        self.locks.pop(name).release()
        return f"unlocked {began}"


def now():
    return time.time_ns() // 1000


output = threading.Lock()


def answer(name, text):
    with output:
        print(name, text, flush=True)


def main():
    client = redis.Redis.from_url(sys.argv[1])
    client.ping()
    threads = {}
    answer("main", f"ready {redis.__version__}")
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            break
        name, order, *rest = words
        thread = threads.setdefault(name, Thread(client, name))
        thread.execute("try_" if order == "try" else order, *rest)
    os._exit(0)  # even during a wait: nothing has to be cleaned up


if __name__ == "__main__":
    main()
