"""Measure many programs at once from one asyncio process: python examples/at_once.py [PROGRAMS [SECONDS]].

Each program sleeps. A server runs at most 256 programs at a time, so several are started. It prints the time, this process's
memory, and how many programs ended with 0.
"""

import asyncio
import resource
import sys
import time

import actiond

AT_MOST = 100  # programs of one server


async def main(programs: int, seconds: float) -> None:
    sandboxes = [await actiond.async_local() for _ in range(-(-programs // AT_MOST))]
    try:
        await asyncio.gather(*(sandbox.exec("true") for sandbox in sandboxes))
        begun = time.monotonic()
        results = await asyncio.gather(*(sandboxes[i % len(sandboxes)].exec(["sleep", f"{seconds:g}"]) for i in range(programs)))
        took = time.monotonic() - begun
    finally:
        await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{programs} × sleep {seconds:g} in {len(sandboxes)} sandboxes: {took:.1f} s, {memory:.0f} MiB, "
          f"{sum(r.ok for r in results)} ended with 0")


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["500", "5"][len(sys.argv) - 1:]
    asyncio.run(main(int(arguments[0]), float(arguments[1])))
