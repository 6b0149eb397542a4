"""Measure many programs at once from one asyncio process: python examples/at_once.py [PROGRAMS [SECONDS]].

Each program sleeps. It takes the sandbox of SANDBOX_URL, or starts a server, and prints the time and this process's memory.
"""

import asyncio
import os
import resource
import sys
import time

import actiond


async def main(programs: int, seconds: float) -> None:
    sandbox = actiond.AsyncSandbox.from_env() if "SANDBOX_URL" in os.environ else await actiond.async_local()
    async with sandbox:
        await sandbox.exec("true")
        begun = time.monotonic()
        results = await asyncio.gather(*(sandbox.exec(["sleep", f"{seconds:g}"]) for _ in range(programs)))
        took = time.monotonic() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{programs} × sleep {seconds:g}: {took:.1f} s, {memory:.0f} MiB, {sum(r.ok for r in results)} ended with 0")


if __name__ == "__main__":
    programs, seconds = (sys.argv[1:] + ["500", "5"][len(sys.argv) - 1:])[:2]
    asyncio.run(main(int(programs), float(seconds)))
