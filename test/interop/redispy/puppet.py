"""Does with redis-py's lock what it is told on standard input.

A line is the name of a thread, an order, the name of a lock and milliseconds. The
thread, which is made when it is first named, obeys its orders one after the other,
and answers each by one line that begins with its name. The end of the input, or
the order quit, ends the process.

    A lock NAME LEASE        waits; says: held WHEN
    A try NAME WAIT LEASE    says: held WHEN, or: refused
    A extend NAME LEASE      the lease starts again; says: extended
    A unlock NAME            says: unlocked BEGAN

A lease of 0 has no end. WHEN and BEGAN are microseconds since 1970. Whatever goes
wrong is said as: error MESSAGE.
"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis


class Thread:
    """One thread with the locks that it has."""

    def __init__(self, client, name):
        self.client = client
        self.name = name
        self.locks = {}
        self.pool = ThreadPoolExecutor(max_workers=1)

    def obey(self, order, name, *millis):
        self.pool.submit(self._obey, order, name, *(int(m) / 1000 for m in millis))

    def _obey(self, order, name, *seconds):
        try:
            answer(self.name, getattr(self, order)(name, *seconds))
        except Exception as problem:  # whatever it is, the test has to hear of it
            answer(self.name, f"error {problem!r}")

    def lock(self, name, lease):
        return self._acquire(name, lease, blocking=True)

    def try_(self, name, wait, lease):
        return self._acquire(name, lease, blocking=wait > 0, blocking_timeout=wait or None)

    def _acquire(self, name, lease, **waiting):
        lock = self.client.lock(name, timeout=lease or None)
        if not lock.acquire(**waiting):
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


speaking = threading.Lock()


def answer(name, text):
    with speaking:
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
        who, order, *rest = words
        thread = threads.setdefault(who, Thread(client, who))
        thread.obey("try_" if order == "try" else order, *rest)
    os._exit(0)  # also out of a wait: nothing that matters is left


if __name__ == "__main__":
    main()
